"""Files as memory, and a write-ahead log with one fence: solera.h by ctypes.

    import solera
    with solera.Place("/dev/shm") as place, place.log("log", create=True) as log:
        log.append(b"a record")                    # durable at return
        for position, record in log.records():
            print(record)

Errors are OSError, with solera's own sentence. What a fence promises depends on the memory: see
Place.kind. The functions are those of solera.h, which says more of each.
"""

import ctypes
import errno
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint, c_uint64, c_void_p

__all__ = ["Place", "File", "Log", "OLDEST"]

OLDEST = 2**64 - 1
_KINDS = ("byte", "cache-line", "volatile", "page")
_CREATE, _EXCLUSIVE, _READONLY = 1, 2, 4


class _Ticket(ctypes.Structure):
    _fields_ = [("thread", c_uint64), ("file", c_uint64)]


class _FileOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("size", c_uint64), ("step", c_uint64), ("flags", c_uint), ("mode", c_uint)]


class _LogOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("capacity", c_uint64), ("readonly", c_int), ("create", c_int), ("mode", c_uint)]


_library = ctypes.CDLL("libsolera.so.0", use_errno=True)
_library.solera_error.restype = c_char_p


def _function(name, result, *arguments):
    function = getattr(_library, "solera_" + name)
    function.restype, function.argtypes = result, arguments

    def call(*given):
        value = function(*given)
        if value is None or value == -1:
            raise OSError(ctypes.get_errno(), _library.solera_error().decode())
        return value

    return call


_open_place = _function("open_place", c_int, c_char_p, c_uint, POINTER(c_void_p))
_close_place = _function("close_place", c_int, c_void_p)
_place_class = _function("place_class", c_int, c_void_p, POINTER(c_char_p))
_fence = _function("fence", c_int, c_void_p)
_open = _function("open", c_int, c_void_p, c_char_p, POINTER(_FileOptions), POINTER(c_void_p))
_close = _function("close", c_int, c_void_p)
_length = _function("length", c_int64, c_void_p)
_length_is_exact = _function("length_is_exact", c_int, c_void_p)
_append = _function("append", c_ssize_t, c_void_p, c_char_p, c_size_t, POINTER(_Ticket))
_pwrite = _function("pwrite", c_ssize_t, c_void_p, c_char_p, c_size_t, c_int64, POINTER(_Ticket))
_pread = _function("pread", c_ssize_t, c_void_p, c_void_p, c_size_t, c_int64)
_view = _function("view", c_void_p, c_void_p, c_int64, c_size_t)
_persist = _function("persist", c_int, c_void_p, c_void_p, c_size_t)
_wait = _function("wait", c_int, c_void_p, _Ticket)
_sync_len = _function("sync_len", c_int, c_void_p)
_truncate = _function("truncate", c_int, c_void_p, c_int64)
_log_open = _function("log_open", c_int, c_void_p, c_char_p, POINTER(_LogOptions), POINTER(c_void_p))
_log_close = _function("log_close", c_int, c_void_p)
_log_append = _function("log_append", c_int, c_void_p, c_char_p, c_size_t, POINTER(c_uint64))
_log_put = _function("log_put", c_int, c_void_p, c_char_p, c_size_t, POINTER(c_uint64))
_log_commit = _function("log_commit", c_int, c_void_p, c_uint64)
_log_read = _function("log_read", c_ssize_t, c_void_p, POINTER(c_uint64), c_void_p, c_size_t)
_log_trim = _function("log_trim", c_int, c_void_p, c_uint64)


class _Handle:
    """Something open; closed at the end of `with`."""

    def __init__(self, handle, close):
        self._handle, self._end = handle, close

    def close(self):
        """Closes it; once more does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            self._end(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Place(_Handle):
    """A directory, or a volume, whose files are used as memory. page: also of an ordinary disk."""

    def __init__(self, where, page=False):
        handle = c_void_p()
        _open_place(os.fsencode(where), int(page), byref(handle))
        super().__init__(handle.value, _close_place)

    @property
    def kind(self):
        """What a fence promises (byte, cache-line, volatile, page), and why."""
        why = c_char_p()
        return _KINDS[_place_class(self._handle, byref(why))], why.value.decode()

    def fence(self):
        """Returns when all that this thread has streamed to files of the place is durable."""
        _fence(self._handle)

    def file(self, path, create=False, exclusive=False, readonly=False, size=0, step=0, mode=0):
        """Opens a file."""
        flags = create * _CREATE | exclusive * _EXCLUSIVE | readonly * _READONLY
        options = _FileOptions(ctypes.sizeof(_FileOptions), size, step, flags, mode)
        handle = c_void_p()
        _open(self._handle, os.fsencode(path), byref(options), byref(handle))
        return File(handle.value, _close)

    def log(self, path, create=False, readonly=False, capacity=0, mode=0):
        """Opens a log."""
        options = _LogOptions(ctypes.sizeof(_LogOptions), capacity, readonly, create, mode)
        handle = c_void_p()
        _log_open(self._handle, os.fsencode(path), byref(options), byref(handle))
        return Log(handle.value, _log_close)


class File(_Handle):
    """A file as memory. Writes return when they are durable, unless wait is False."""

    def __len__(self):
        return _length(self._handle)

    @property
    def is_exact(self):
        """Whether the length found at opening is exact; else it may end in zeros that nobody wrote."""
        return bool(_length_is_exact(self._handle))

    def append(self, data, wait=True):
        """Appends bytes."""
        ticket, data = _Ticket(), bytes(data)
        _append(self._handle, data, len(data), byref(ticket))
        if wait:
            _wait(self._handle, ticket)

    def write(self, data, offset, wait=True):
        """Writes bytes at an offset. Not atomic."""
        ticket, data = _Ticket(), bytes(data)
        _pwrite(self._handle, data, len(data), offset, byref(ticket))
        if wait:
            _wait(self._handle, ticket)

    def read(self, count, offset):
        """Up to count bytes from an offset on."""
        room = ctypes.create_string_buffer(count)
        read = _pread(self._handle, room, count, offset)
        return room.raw[:read]

    def view(self, offset, count):
        """The memory itself, to be stored to; durable after persist(). Only while the file is open."""
        return memoryview((ctypes.c_ubyte * count).from_address(_view(self._handle, offset, count))).cast("B")

    def persist(self, offset, count):
        """Returns when what was stored to a view there is durable."""
        _persist(self._handle, _view(self._handle, offset, count), count)

    def sync_len(self):
        """Makes the length exact, and durable."""
        _sync_len(self._handle)

    def truncate(self, length):
        """Makes the file that long."""
        _truncate(self._handle, length)


class Log(_Handle):
    """A write-ahead log. One thread at a time reads by one object."""

    def __init__(self, handle, close):
        super().__init__(handle, close)
        self._room = ctypes.create_string_buffer(4096)

    def append(self, record):
        """Appends a record, durably; gives its position."""
        position, record = c_uint64(), bytes(record)
        _log_append(self._handle, record, len(record), byref(position))
        return position.value

    def put(self, record):
        """As append(), but it is durable after commit() only."""
        position, record = c_uint64(), bytes(record)
        _log_put(self._handle, record, len(record), byref(position))
        return position.value

    def commit(self, position):
        """Makes all durable up to the record at a position."""
        _log_commit(self._handle, position)

    def read(self, position=OLDEST):
        """The first durable record at a position or behind it, as (next position, record); None: there
        is none yet. OSError with ESTALE: it is trimmed."""
        while True:
            at, room = c_uint64(position), len(self._room)
            try:
                count = _log_read(self._handle, byref(at), self._room, room)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                self._room = ctypes.create_string_buffer(4 * room)
            else:
                return (at.value, self._room[:count]) if count else None

    def records(self, position=OLDEST):
        """All durable records from a position on, as (position behind it, record)."""
        while found := self.read(position):
            yield found
            position = found[0]

    def trim(self, position):
        """Says that nothing before the record at a position is needed any more."""
        _log_trim(self._handle, position)
