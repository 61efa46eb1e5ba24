"""Does for the program what systemd does: holds its socket, and starts another process with it at each SIGUSR1.

python3 hold-socket.py PORT FOLDER COMMAND [ARGUMENT ...]

The processes have admin sockets of their own: 0.sock, 1.sock and so on in FOLDER.
"""

import itertools
import os
import signal
import socket
import sys

port, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
FIRST_DESCRIPTOR = 3

held = socket.create_server(("127.0.0.1", port), backlog=4096)
os.dup2(held.fileno(), FIRST_DESCRIPTOR)
os.set_inheritable(FIRST_DESCRIPTOR, True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects what has ended
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for number in itertools.count():
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", OAP_ADMIN_ADDRESS=f"unix:{folder}/{number}.sock")
        os.execvp(command[0], command)
    signal.sigwait([signal.SIGUSR1])
