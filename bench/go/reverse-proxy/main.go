// Command reverse-proxy is the standard library's reverse proxy. It adds only the credentials, and keeps enough idle
// connections to the origin that it does not open new ones.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

// The same number as this project's own pool.
const originConnections = 256

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	origin := flag.String("origin", "", "URL of the origin")
	ca := flag.String("ca", "", "file with the certificate to trust")
	flag.Parse()

	target, err := url.Parse(*origin)
	if err != nil {
		log.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	rewrite := proxy.Director
	proxy.Director = func(request *http.Request) {
		rewrite(request)
		request.Host = target.Host
		request.Header.Set("Authorization", "Bearer a-token-of-usual-length")
		request.Header.Del("X-Org-Id")
	}
	proxy.Transport = &http.Transport{
		MaxConnsPerHost:     originConnections,
		MaxIdleConnsPerHost: originConnections,
		DisableCompression:  true,
		TLSClientConfig:     &tls.Config{RootCAs: trusted(*ca)},
	}
	log.Fatal(http.ListenAndServe(*listen, proxy))
}

func trusted(path string) *x509.CertPool {
	pem, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool
}
