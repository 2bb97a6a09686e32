"""solera.py does what it says: usage python.py DIRECTORY."""

import errno
import sys

import solera


def fails(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number and "solera_" in error.strerror, error
    else:
        raise AssertionError(f"{call} does not fail")


with solera.Place(sys.argv[1], page=True) as place:
    kind, why = place.kind
    assert kind in ("byte", "cache-line", "volatile", "page") and why
    fails(errno.ENOENT, place.file, "none")
    with place.file("file", create=True, step=65536) as file:
        file.append(b"hello, ")
        file.append(b"world", wait=False)
        place.fence()
        file.write(b"W", 7)
        assert file.read(100, 0) == b"hello, World" and len(file) == 12 and file.is_exact
        view = file.view(0, 5)
        view[0] = ord("H")
        file.persist(0, 1)
        assert file.read(5, 0) == b"Hello"
        file.truncate(5)
        file.sync_len()
        fails(errno.EINVAL, file.read, 1, -1)
    with open(sys.argv[1] + "/file", "rb") as plain:
        assert plain.read() == b"Hello"
    with place.log("log", create=True, capacity=4096) as log:
        positions = [log.append(f"record {number}".encode()) for number in range(5)]
        log.commit(log.put(b"the last"))
        records = [record for _, record in log.records()]
        assert records == [b"record %d" % number for number in range(5)] + [b"the last"]
        assert log.read(log.append(b"x" * 1000))[1] == b"x" * 1000
        log.trim(positions[3])
        fails(errno.ESTALE, log.read, positions[0])
        fails(errno.EINVAL, log.append, b"")
        fails(errno.EMSGSIZE, log.append, b"x" * 2000)
        with place.log("log", readonly=True) as reader:
            assert [record for _, record in reader.records()][0] == b"record 3"
            fails(errno.EBADF, reader.append, b"x")
    fails(errno.EINVAL, file.append, b"closed")
print("ok")
