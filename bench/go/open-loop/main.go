// Command open-loop sends requests on a fixed schedule and does not wait for earlier answers, so a slow answer delays no
// later request. It prints one line of JSON: the latency of each request and the delay of its start, both in
// milliseconds, and the number of failed requests.
//
// One thread waits for everything. A kernel timer starts each request, with a precision of some tens of microseconds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// An answer that takes longer than this counts as missing.
const patience = 5 * time.Second

type load struct {
	port     int
	request  []byte
	interval time.Duration
	total    int

	poll      *poll
	idle      []*connection
	byFd      map[int]*connection
	startedAt time.Time
	sent      int
	ended     int
	results   results
}

type results struct {
	LatenciesMs []float64 `json:"latenciesMs"`
	LatenessMs  []float64 `json:"latenessMs"`
	Failures    int       `json:"failures"`
}

func main() {
	port := flag.Int("port", 0, "port on the loopback interface")
	path := flag.String("path", "/", "path to ask for")
	rate := flag.Int("rate", 1_000, "requests per second")
	duration := flag.Duration("for", time.Second, "how long to send")
	flag.Parse()

	// The program makes little garbage, and a collection would disturb the measurement.
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	total := int(duration.Seconds() * float64(*rate))
	l := &load{
		port:     *port,
		request:  []byte(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Org-Id: acme\r\n\r\n", *path, *port)),
		interval: time.Second / time.Duration(*rate),
		total:    total,
		byFd:     map[int]*connection{},
		results: results{
			LatenciesMs: make([]float64, 0, total),
			LatenessMs:  make([]float64, 0, total),
		},
	}
	l.run()
	if err := json.NewEncoder(os.Stdout).Encode(l.results); err != nil {
		log.Fatal(err)
	}
}

func (l *load) run() {
	l.startedAt = time.Now()
	l.poll = newPoll(l.interval)
	for !l.isOver() {
		readable, isDue := l.poll.wait()
		// Read answers first, so that the next requests do not count as part of their latency.
		for _, fd := range readable {
			l.read(l.byFd[fd])
		}
		if isDue {
			l.sendDue()
		}
	}
	l.results.Failures += l.total - l.ended
}

func (l *load) isOver() bool {
	return l.ended == l.total || time.Since(l.dueAt(l.total)) > patience
}

func (l *load) dueAt(index int) time.Time {
	return l.startedAt.Add(time.Duration(index+1) * l.interval)
}

func (l *load) sendDue() {
	for l.sent < l.total && time.Now().After(l.dueAt(l.sent)) {
		l.send(l.sent)
		l.sent++
	}
}

func (l *load) send(index int) {
	c, err := l.takeConnection()
	if err != nil {
		l.end(false)
		return
	}
	c.isWaiting = true
	// The latency begins here. The delay of this process is reported separately.
	c.sentAt = time.Now()
	l.results.LatenessMs = append(l.results.LatenessMs, milliseconds(c.sentAt.Sub(l.dueAt(index))))
	if _, err := syscall.Write(c.fd, l.request); err != nil {
		l.forget(c)
		l.end(false)
	}
}

func (l *load) takeConnection() (*connection, error) {
	if last := len(l.idle) - 1; last >= 0 {
		c := l.idle[last]
		l.idle = l.idle[:last]
		return c, nil
	}
	c, err := connect(l.port)
	if err != nil {
		return nil, err
	}
	l.byFd[c.fd] = c
	return c, l.poll.add(c.fd)
}

func (l *load) read(c *connection) {
	if !c.isWaiting {
		// The other side may close an idle connection.
		l.removeIdle(c)
		l.forget(c)
		return
	}
	status, err := c.read()
	readAt := time.Now()
	if err == errUnfinished {
		return
	}
	l.end(err == nil && status == "200")
	if err != nil {
		l.forget(c)
		return
	}
	l.results.LatenciesMs = append(l.results.LatenciesMs, milliseconds(readAt.Sub(c.sentAt)))
	c.isWaiting = false
	l.idle = append(l.idle, c)
}

func (l *load) end(isGood bool) {
	l.ended++
	if !isGood {
		l.results.Failures++
	}
}

func (l *load) removeIdle(c *connection) {
	for index, other := range l.idle {
		if other == c {
			l.idle = append(l.idle[:index], l.idle[index+1:]...)
			return
		}
	}
}

func (l *load) forget(c *connection) {
	delete(l.byFd, c.fd)
	syscall.Close(c.fd)
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e6
}
