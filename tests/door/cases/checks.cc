// A C++ program with streams, directories, threads and mapped files, for sanitizers and debuggers.
// Usage: checks DIRECTORY. It ends with 1 if what it reads is not what it wrote.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

char buffer[64];

// What a debugger stops in: a read that is served.
__attribute__((noinline)) ssize_t fill(int file) {
    ssize_t length = pread(file, buffer, sizeof buffer - 1, 0);
    return length;
}

static void write_numbers(const fs::path &path) {
    std::ofstream out(path);
    for (int at = 0; at < 3000; at++)
        out << at << '\n';
}

static long sum(const fs::path &path) {
    std::ifstream in(path);
    long total = 0;
    for (long value; in >> value;)
        total += value;
    return total;
}

int main(int, char **arguments) {
    fs::path at = fs::path(arguments[1]) / "checks";
    // Not with what is above: that is there for those that see the volume.
    fs::create_directory(at);
    fs::create_directories(at / "deep/er");
    std::vector<std::thread> threads;
    for (int which = 0; which < 3; which++)
        threads.emplace_back([=] { write_numbers(at / std::to_string(which)); });
    for (auto &thread : threads)
        thread.join();
    long total = 0;
    for (int which = 0; which < 3; which++)
        total += sum(at / std::to_string(which));
    std::cout << "sum " << total << ", size " << fs::file_size(at / "0") << std::endl;
    {
        std::fstream both(at / "both", std::ios::in | std::ios::out | std::ios::trunc);
        both << "first second third";
        both.seekg(6);
        std::string word;
        both >> word;
        both.clear();
        both.seekp(0);
        both << "FIRST";
        std::cout << word << std::endl;
    }
    int file = open((at / "both").c_str(), O_RDWR);
    std::cout << fill(file) << " " << buffer << std::endl;
    char *mapped = static_cast<char *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    mapped[6] = 'S';
    munmap(mapped, 4096);
    close(file);
    pid_t child = fork();
    if (child == 0) {
        write_numbers(at / "child");
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::ostringstream read;
    read << std::ifstream(at / "both").rdbuf();
    std::cout << read.str() << " " << status << " " << sum(at / "child") << std::endl;
    fs::copy(at, fs::path(arguments[1]) / "copied", fs::copy_options::recursive);
    int count = 0;
    for (const auto &entry : fs::recursive_directory_iterator(fs::path(arguments[1]) / "copied"))
        count += entry.is_regular_file() ? 1 : 100;
    std::cout << count << " " << fs::canonical(at / "deep/../both").string() << std::endl;
    fs::remove_all(at);
    fs::remove_all(fs::path(arguments[1]) / "copied");
    return total == 3 * 4498500L ? 0 : 1;
}
