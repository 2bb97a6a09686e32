# Java: NIO channels, mapped buffers, file locks, walks, attributes, links, 1,000 files.
needs java javac
javac -d classes "$HERE/cases/Checks.java" 2>&1
srun java -Xshare:auto -Xmx256m -XX:+UseSerialGC -cp classes Checks "$AT" || fail "the checks"
# The classes themselves on the volume, in a jar.
srun cp -r classes "$AT/classes"
srun bash -c "cd $AT/classes && zip -q0 ../checks.jar *.class" || skip_jar=1
srun java -Xmx256m -XX:+UseSerialGC -cp "$AT/classes" Checks "$AT" || fail "classes on the volume"
