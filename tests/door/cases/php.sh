# PHP loads its extensions with RTLD_DEEPBIND: SQLite3 and PDO open their databases on the volume.
needs php
php -m | grep -q pdo_sqlite || skip "PHP has no pdo_sqlite"
cat >checks.php <<'PHP'
<?php
$at = $argv[1];
$db = new SQLite3("$at/one.db");
$db->exec('PRAGMA journal_mode=WAL; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)');
for ($i = 0; $i < 50; $i++) $db->exec("INSERT INTO t (v) VALUES ('value $i')");
echo $db->querySingle('SELECT count(*) || max(v) FROM t'), "\n";
$db->close();
$pdo = new PDO("sqlite:$at/one.db");
echo $pdo->query('SELECT group_concat(v) FROM t WHERE k < 4')->fetchColumn(), "\n";
$pdo->beginTransaction(); $pdo->exec('DELETE FROM t WHERE k > 9'); $pdo->commit();
echo $pdo->query('PRAGMA integrity_check')->fetchColumn(), "\n";
file_put_contents("$at/text", "line\n", FILE_APPEND | LOCK_EX);
$f = fopen("$at/text", 'r+'); fseek($f, 2); fwrite($f, 'NE'); rewind($f); echo fgets($f);
mkdir("$at/d"); touch("$at/d/a"); print_r(scandir("$at/d")); print_r(glob("$at/*.db"));
echo realpath("$at/d/../text"), ' ', filesize("$at/text"), ' ', is_dir("$at/d"), "\n";
file_put_contents("$at/in.php", '<?php return 7;'); echo include "$at/in.php", "\n";
echo shell_exec("cat $at/text");
PHP
said php srun php checks.php "$AT"
