# POSIX conformance: pjdfstest, the Rust port, all cases; as root, for it changes users.
[ "$(id -u)" = 0 ] || skip "pjdfstest needs root"
tool pjdfstest 0.2.2
getent passwd daemon >/dev/null || skip "there is no user daemon"
# A second file system, for what must not cross the border.
mkdir second
[ "$(stat -fc %T second)" != "$(stat -fc %T /tmp)" ] && second=/tmp || second=$HERE
cat >pjdfstest.toml <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
face "$TOOLS/bin/pjdfstest" -c pjdfstest.toml -p "$AT" -s "$second" >out 2>&1 || true
cat out
grep -q 'Summary: ' out || fail "pjdfstest did not come to its end"
awk '/^[a-z_0-9:]+ +(ok|FAILED|skipped)$/ { print $1, $2 }' out >>"$RESULTS"
[ "$(wc -l <"$RESULTS")" -gt 350 ] || fail "too few checks"
