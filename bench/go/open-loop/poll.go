package main

import (
	"log"
	"syscall"
	"time"
	"unsafe"
)

// One wait returns at most this many sockets.
const eventsAtOnce = 64

const (
	clockMonotonic = 1
	// A read of the timer returns the number of times that it went off.
	timerBytes = 8
)

// A poll waits for sockets and for a timer that goes off at a fixed interval, as precisely as the kernel can.
type poll struct {
	fd     int
	timer  int
	events [eventsAtOnce]syscall.EpollEvent
	fds    [eventsAtOnce]int
}

func newPoll(interval time.Duration) *poll {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		log.Fatal("epoll: ", err)
	}
	p := &poll{fd: fd, timer: newTimer(interval)}
	if err := p.add(p.timer); err != nil {
		log.Fatal("epoll: ", err)
	}
	return p
}

func newTimer(interval time.Duration) int {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		log.Fatal("timer: ", errno)
	}
	step := syscall.NsecToTimespec(interval.Nanoseconds())
	times := struct{ interval, first syscall.Timespec }{step, step}
	_, _, errno = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		log.Fatal("timer: ", errno)
	}
	return int(fd)
}

func (p *poll) add(fd int) error {
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

// wait returns the readable sockets, valid until the next call, and true if the timer has gone off.
func (p *poll) wait() (readable []int, isDue bool) {
	count, err := syscall.EpollWait(p.fd, p.events[:], -1)
	for err == syscall.EINTR {
		count, err = syscall.EpollWait(p.fd, p.events[:], -1)
	}
	if err != nil {
		log.Fatal("epoll: ", err)
	}
	readable = p.fds[:0]
	for _, event := range p.events[:count] {
		if int(event.Fd) == p.timer {
			isDue = true
			p.clearTimer()
		} else {
			readable = append(readable, int(event.Fd))
		}
	}
	return readable, isDue
}

func (p *poll) clearTimer() {
	var times [timerBytes]byte
	if _, err := syscall.Read(p.timer, times[:]); err != nil && err != syscall.EAGAIN {
		log.Fatal("timer: ", err)
	}
}
