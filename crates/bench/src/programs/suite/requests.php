<?php
// php requests.php sqlite|session DIRECTORY COUNT
[, $kind, $directory, $count] = $argv;
$value = str_repeat('v', 100);
if ($kind === 'sqlite') {
    $store = new PDO("sqlite:$directory/test.db", null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    $store->exec('PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT)');
    $insert = $store->prepare('INSERT INTO t(value) VALUES(?)');
    for ($request = 0; $request < $count; $request++) {
        $insert->execute([$value]);
    }
    exit(0);
}
for ($request = 0; $request < $count; $request++) {
    $name = "$directory/session-" . $request % 100;
    $said = @file_get_contents($name);
    $visits = $said === false ? 0 : unserialize($said)['visits'];
    file_put_contents("$name.new", serialize(['visits' => $visits + 1, 'value' => $value]), LOCK_EX);
    if (!rename("$name.new", $name)) {
        exit(1);
    }
}
