# A Java runtime on the volume: its launcher finds its libraries there by $ORIGIN.
needs java javac jlink
mkdir classes
cat >Checks.java <<'JAVA'
import java.nio.file.*;
public class Checks {
    public static void main(String[] arguments) throws Exception {
        Path at = Path.of(arguments[0]);
        Files.writeString(at.resolve("text"), "by java\n");
        System.out.println(Files.readString(at.resolve("text")) + System.getProperty("java.home"));
        try (var map = java.nio.channels.FileChannel.open(at.resolve("text"), StandardOpenOption.READ)) {
            System.out.println(map.map(java.nio.channels.FileChannel.MapMode.READ_ONLY, 0, 7).get(3));
        }
        try (var files = Files.list(at)) { files.map(Path::getFileName).sorted().forEach(System.out::println); }
        System.out.println(new String(new ProcessBuilder("cat", at + "/text").start().getInputStream().readAllBytes()));
    }
}
JAVA
javac -d classes Checks.java || exit 1
jlink --add-modules java.base --strip-debug --output runtime >/dev/null || skip "jlink makes no runtime here"
said "copied" srun cp -a runtime classes "$AT"
said "run" srun "$AT/runtime/bin/java" -XX:+UseSerialGC -cp "$AT/classes" Checks "$AT"
