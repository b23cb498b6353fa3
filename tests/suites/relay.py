"""A stdio server that passes its pipe on to a Unix socket: `relay.py PATH`."""

import os
import socket
import sys
import threading

peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])


def input_to_peer():
    while data := os.read(0, 65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)


threading.Thread(target=input_to_peer, daemon=True).start()
while data := peer.recv(65536):
    while data:
        data = data[os.write(1, data) :]
