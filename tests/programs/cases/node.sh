# Node: synchronous calls, callbacks and promises through libuv's threads, streams, workers.
needs node
srun node "$HERE/cases/node_checks.js" "$AT" || fail "the checks"
