import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.nio.file.attribute.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** Checks of Java's file classes on a directory; each says what it saw when it fails. */
public class Checks {
    static int checks = 0;

    static void is(Object found, Object wanted, String what) {
        checks++;
        if (!Objects.equals(found, wanted)) throw new AssertionError(what + ": expected [" + wanted + "], found [" + found + "]");
    }

    static byte[] bytes(int seed, int length) {
        byte[] data = new byte[length];
        new Random(seed).nextBytes(data);
        return data;
    }

    static void thousandFiles(Path dir) throws Exception {
        Files.createDirectory(dir);
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<?>> writes = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            int n = i;
            writes.add(pool.submit(() -> { Files.write(dir.resolve("f" + n), bytes(n, n * 11 % 9000)); return null; }));
        }
        for (Future<?> write : writes) write.get();
        List<Future<Boolean>> reads = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            int n = i;
            reads.add(pool.submit(() -> Arrays.equals(Files.readAllBytes(dir.resolve("f" + n)), bytes(n, n * 11 % 9000))));
        }
        for (Future<Boolean> read : reads) is(read.get(), true, "a file's bytes");
        pool.shutdown();
        try (Stream<Path> walk = Files.walk(dir)) { is(walk.filter(Files::isRegularFile).count(), 1000L, "walk"); }
        try (DirectoryStream<Path> some = Files.newDirectoryStream(dir, "f99*")) { int n = 0; for (Path p : some) n++; is(n, 11, "newDirectoryStream"); }
        try (Stream<Path> found = Files.find(dir, 2, (p, a) -> a.size() == 0)) { is(found.count(), 1L, "find"); }
    }

    static void channels(Path dir) throws Exception {
        Path path = dir.resolve("channel");
        try (FileChannel c = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            is(c.write(ByteBuffer.wrap(bytes(1, 100000))), 100000, "write");
            is(c.write(ByteBuffer.allocateDirect(777), 500000), 777, "write at a position");
            is(c.size(), 500777L, "size");
            is(c.position(), 100000L, "position");
            ByteBuffer[] parts = {ByteBuffer.allocate(10), ByteBuffer.allocateDirect(4096), ByteBuffer.allocate(5)};
            c.position(0);
            is(c.read(parts), 4111L, "scattering read");
            is(parts[0].get(3), bytes(1, 100000)[3], "a byte");
            MappedByteBuffer map = c.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            is(c.size(), 1L << 20, "size after the mapping grew the file");
            for (int i = 0; i < 1 << 20; i += 4096) map.putInt(i, i);
            map.force();
            ByteBuffer four = ByteBuffer.allocate(4);
            c.read(four, 409600);
            is(four.getInt(0), 409600, "a store through the mapping, read by a call");
            four.clear();
            c.write(four.putInt(0, 42), 8192);
            is(map.getInt(8192), 42, "a write by a call, seen in the mapping");
            MappedByteBuffer own = c.map(FileChannel.MapMode.PRIVATE, 0, 4096);
            own.putInt(0, 99);
            is(map.getInt(0), 0, "a private mapping");
            c.truncate(5000);
            is(c.size(), 5000L, "truncate");
            try (FileLock lock = c.lock(0, 100, false)) { is(lock.isValid(), true, "lock"); }
            try (FileLock lock = c.tryLock()) { is(lock.isShared(), false, "tryLock"); }
            c.force(true);
        }
        Path copy = dir.resolve("copy");
        Files.write(path, bytes(5, 3000000));
        try (FileChannel from = FileChannel.open(path); FileChannel to = FileChannel.open(copy, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            long done = 0;
            while (done < from.size()) done += from.transferTo(done, from.size() - done, to);
        }
        is(Files.mismatch(path, copy), -1L, "transferTo");
        try (FileChannel out = FileChannel.open(copy, StandardOpenOption.APPEND)) { out.write(ByteBuffer.wrap(new byte[] {1, 2, 3})); is(out.size(), 3000003L, "append"); }
        try (AsynchronousFileChannel a = AsynchronousFileChannel.open(copy, StandardOpenOption.READ)) {
            ByteBuffer b = ByteBuffer.allocate(1000);
            is(a.read(b, 1000000).get(), 1000, "asynchronous read");
            is(b.get(0), bytes(5, 3000000)[1000000], "its byte");
        }
        try (RandomAccessFile r = new RandomAccessFile(dir.resolve("random").toFile(), "rw")) {
            r.writeUTF("text"); r.seek(1000); r.writeLong(7); r.setLength(2000); r.seek(0);
            is(r.readUTF(), "text", "RandomAccessFile"); r.seek(1000); is(r.readLong(), 7L, "readLong"); is(r.length(), 2000L, "length");
        }
    }

    static void names(Path dir) throws Exception {
        Path a = Files.writeString(dir.resolve("a"), "first\nsecond\n");
        is(Files.readAllLines(a).size(), 2, "lines");
        Path link = Files.createSymbolicLink(dir.resolve("link"), Path.of("a"));
        is(Files.readSymbolicLink(link), Path.of("a"), "readSymbolicLink");
        is(link.toRealPath(), a.toRealPath(), "toRealPath");
        is(a.toRealPath().toString(), a.toString(), "the real path");
        Files.createLink(dir.resolve("hard"), a);
        is(Files.getAttribute(a, "unix:nlink"), 2, "nlink");
        is(Files.isSameFile(a, dir.resolve("hard")), true, "isSameFile");
        Files.setPosixFilePermissions(a, PosixFilePermissions.fromString("rw-r-----"));
        is(PosixFilePermissions.toString(Files.getPosixFilePermissions(a)), "rw-r-----", "permissions");
        Files.setLastModifiedTime(a, FileTime.fromMillis(1234567890123L));
        is(Files.getLastModifiedTime(a).toMillis(), 1234567890123L, "times");
        UserDefinedFileAttributeView view = Files.getFileAttributeView(a, UserDefinedFileAttributeView.class);
        if (view != null) {
            view.write("note", ByteBuffer.wrap("kept".getBytes()));
            is(view.list(), List.of("note"), "attributes");
            is(view.size("note"), 4, "an attribute's size");
        }
        Files.copy(a, dir.resolve("b"), StandardCopyOption.COPY_ATTRIBUTES);
        is(Files.getLastModifiedTime(dir.resolve("b")).toMillis(), 1234567890123L, "times of a copy");
        Files.move(dir.resolve("b"), dir.resolve("c"), StandardCopyOption.ATOMIC_MOVE);
        Files.copy(a, dir.resolve("c"), StandardCopyOption.REPLACE_EXISTING);
        for (Class<?> wanted : List.of(FileAlreadyExistsException.class, NoSuchFileException.class, DirectoryNotEmptyException.class)) {
            try {
                if (wanted == FileAlreadyExistsException.class) Files.createFile(a);
                else if (wanted == NoSuchFileException.class) Files.size(dir.resolve("none"));
                else Files.delete(dir);
                throw new AssertionError("no " + wanted);
            } catch (FileSystemException e) { is(e.getClass(), wanted, "exception"); }
        }
        Path temporary = Files.createTempFile(dir, "t", ".tmp");
        try (OutputStream out = Files.newOutputStream(temporary, StandardOpenOption.DELETE_ON_CLOSE)) { out.write(1); }
        is(Files.exists(temporary), false, "DELETE_ON_CLOSE");
        FileStore store = Files.getFileStore(a);
        is(store.getTotalSpace() > 0 && store.getUsableSpace() > 0, true, "space");
        File old = dir.resolve("old").toFile();
        is(old.mkdir() && new File(old, "x").createNewFile() && old.list().length == 1 && old.canWrite() && old.isDirectory(), true, "java.io.File");
        is(new File(old, "x").renameTo(new File(old, "y")) && new File(old, "y").delete() && old.delete(), true, "java.io.File, changes");
    }

    static void processes(Path dir) throws Exception {
        File out = dir.resolve("out").toFile();
        Process p = new ProcessBuilder("sh", "-c", "pwd; cat a").directory(dir.toFile()).redirectOutput(out).redirectInput(dir.resolve("a").toFile()).start();
        is(p.waitFor(), 0, "the child");
        is(Files.readString(out.toPath()), dir + "\nfirst\nsecond\n", "what the child wrote");
        Process q = new ProcessBuilder("cat", out.toString()).start();
        is(new String(q.getInputStream().readAllBytes(), StandardCharsets.UTF_8), dir + "\nfirst\nsecond\n", "what the child read");
        is(q.waitFor(), 0, "cat");
    }

    static void watch(Path dir) throws Exception {
        try (WatchService watcher = dir.getFileSystem().newWatchService()) {
            dir.register(watcher, StandardWatchEventKinds.ENTRY_CREATE);
            Files.writeString(dir.resolve("watched"), "x");
            is(watcher.poll(10, TimeUnit.SECONDS) != null, true, "an event of a watched directory");
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path dir = Files.createTempDirectory(Path.of(arguments[0]), "java");
        thousandFiles(dir.resolve("thousand"));
        channels(dir);
        names(dir);
        processes(dir);
        watch(dir);
        try (Stream<Path> walk = Files.walk(dir)) { for (Path p : walk.sorted(Comparator.reverseOrder()).toList()) Files.delete(p); }
        is(Files.exists(dir), false, "all removed");
        System.out.println("all " + checks + " of Java's checks passed");
    }
}
