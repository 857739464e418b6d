"""A TCP proxy that counts bytes: what really passes between a SuperNode and the SuperLink."""

import socket
import threading
import time
from contextlib import suppress

CHUNK = 1 << 14


class CountingProxy:
    """Listens on a free port of 127.0.0.1 and passes everything on to another.

    `bytes_per_second`, if it is set, slows down what goes up.
    """

    def __init__(self, target):
        self.target = target
        self.up = 0  # from whoever connects
        self.down = 0
        self.bytes_per_second = None
        self._lock = threading.Lock()
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = []
        self._start(self._accept)

    def close(self):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(timeout=10)
        self._listener.close()

    def cut(self):
        """Drop every connection with what is on its way, as when a machine dies: its buffers die with it."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._start(self._serve, near)

    def _serve(self, near):
        with (
            near,
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.target)) as far,
        ):
            self._open |= {near, far}
            back = self._start(self._pass_on, far, near, "down")
            self._pass_on(near, far, "up")
            back.join()
            self._open -= {near, far}

    def _pass_on(self, source, sink, direction):
        with suppress(OSError):
            while content := source.recv(CHUNK):
                with self._lock:
                    setattr(self, direction, getattr(self, direction) + len(content))
                if direction == "up" and self.bytes_per_second:
                    time.sleep(len(content) / self.bytes_per_second)
                sink.sendall(content)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
