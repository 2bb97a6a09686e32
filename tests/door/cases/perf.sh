# perf with call graphs, by frame pointers and by DWARF: samples of the program lead back to main.
needs perf g++
perf stat -e task-clock true >/dev/null 2>&1 || skip "perf may not count here"
g++ -std=c++17 -g -O1 -fno-omit-frame-pointer -pthread "$HERE/cases/checks.cc" -o checks || exit 1
for graph in fp dwarf; do
    said "$graph" srun perf record -q -e task-clock -F 5000 --call-graph $graph -o $graph.data ./checks "$AT"
    perf script -i $graph.data 2>/dev/null >$graph.txt
    grep -q '\(main\|write_numbers\)' $graph.txt && echo "its functions are in the graph"
done
