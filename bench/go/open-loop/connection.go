package main

import (
	"bytes"
	"errors"
	"strconv"
	"syscall"
	"time"
)

var (
	errUnfinished = errors.New("the response is not all there")
	errClosed     = errors.New("the connection was closed")
	errNoLength   = errors.New("a response without a Content-Length")
	errTooLarge   = errors.New("a response larger than asked for")
)

var (
	headEnd     = []byte("\r\n\r\n")
	lengthField = []byte("\r\ncontent-length:")
)

// A connection reads only one kind of HTTP/1.1 response: small, with a Content-Length, one at a time.
type connection struct {
	fd        int
	received  [4_096]byte
	length    int
	sentAt    time.Time
	isWaiting bool
}

func connect(port int) (*connection, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := prepare(fd, port); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return &connection{fd: fd}, nil
}

func prepare(fd, port int) error {
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return err
	}
	return syscall.SetNonblock(fd, true)
}

// read takes the bytes that have arrived. It returns the status once the response is complete.
func (c *connection) read() (string, error) {
	if c.length == len(c.received) {
		return "", errTooLarge
	}
	n, err := syscall.Read(c.fd, c.received[c.length:])
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return "", errUnfinished
	}
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "", errClosed
	}
	c.length += n
	status, err := parse(c.received[:c.length])
	if err == nil {
		c.length = 0
	}
	return status, err
}

func parse(received []byte) (string, error) {
	end := bytes.Index(received, headEnd)
	if end < len("HTTP/1.1 200") {
		return "", errUnfinished
	}
	head := bytes.ToLower(received[:end+len("\r\n")])
	at := bytes.Index(head, lengthField)
	if at < 0 {
		return "", errNoLength
	}
	value := head[at+len(lengthField):]
	value = bytes.TrimSpace(value[:bytes.IndexByte(value, '\r')])
	content, err := strconv.Atoi(string(value))
	if err != nil {
		return "", errNoLength
	}
	if len(received) < end+len(headEnd)+content {
		return "", errUnfinished
	}
	return string(received[9:12]), nil
}
