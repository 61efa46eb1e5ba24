// Before: request.Header.Set("Authorization", "Bearer "+token), to https://api.example.com
// Now: the proxy gets the token, and renews it in time.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	log.SetFlags(0)
	proxyURL := "http://localhost:8080"
	if value, ok := os.LookupEnv("PROXY_URL"); ok {
		proxyURL = value
	}
	org := "acme"
	if len(os.Args) > 1 {
		org = os.Args[1]
	}

	request, err := http.NewRequest(http.MethodGet, proxyURL+"/v2/example/endpoint", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("X-Org-Id", org)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()

	if response.Header.Get("Proxy-Status") != "" {
		// This is an error of the proxy, not an answer of the service.
		var problem struct{ Code, Detail string }
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
			log.Fatal(err)
		}
		log.Fatalf("%s: %s", problem.Code, problem.Detail)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(content))
}
