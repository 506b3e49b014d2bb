// Asks Steadfast whether a plan may run. Usage: check IMAGE INSTRUCTION PLAN
// Exit code: 0 permit, 4 the planner refused, 3 veto. Silence, a bus error and a missing name are vetoes too.
// Build: g++ -std=c++17 check.cpp $(pkg-config --cflags --libs sdbus-c++)
// The bus is the system bus, or the one that STEADFAST_BUS_ADDRESS names.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sdbus-c++/sdbus-c++.h>
#include <stdexcept>
#include <string>
#include <vector>

constexpr uint32_t DEADLINE_MS = 5000;  // the guard's; ours lies a little behind it, so that its answer still arrives
constexpr uint64_t PATIENCE_US = (DEADLINE_MS + 500) * uint64_t{1000};

// A memfd that can never change again; the guard takes nothing else.
sdbus::UnixFd sealed(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
    const sdbus::UnixFd memfd(memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING), sdbus::adopt_fd);
    if (write(memfd.get(), image.data(), image.size()) != static_cast<ssize_t>(image.size()) ||
        fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) != 0)
        throw std::runtime_error("the image cannot be sealed");
    return memfd;
}

int main(int argc, char** argv) try {
    if (argc != 4) throw std::runtime_error("usage: check IMAGE INSTRUCTION PLAN");
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);  // belongs to the moment the picture was taken
    const auto stamp_ns = static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
    const std::map<std::string, sdbus::Variant> options{{"deadline_ms", sdbus::Variant(DEADLINE_MS)},
                                                        {"image_stamp_ns", sdbus::Variant(stamp_ns)}};
    if (const char* address = std::getenv("STEADFAST_BUS_ADDRESS")) setenv("DBUS_SYSTEM_BUS_ADDRESS", address, 1);
    auto guard = sdbus::createProxy("org.steadfast.Guard1", "/org/steadfast/Guard1");
    std::string verdict, reason;
    double malleability = -1;
    std::vector<uint8_t> permit;
    std::map<std::string, sdbus::Variant> details;
    guard->callMethod("Check").onInterface("org.steadfast.Guard1").withTimeout(PATIENCE_US)
        .withArguments(sealed(argv[1]), std::string(argv[2]), std::string(argv[3]), options)
        .storeResultsTo(verdict, reason, malleability, permit, details);
    std::printf("%s %s ", verdict.c_str(), reason.c_str());
    for (const uint8_t byte : permit) std::printf("%02x", byte);
    std::printf("\n");
    return verdict == "permit" ? 0 : verdict == "refusal" ? 4 : 3;
} catch (const std::exception& error) {  // whatever it is, nobody said yes
    std::printf("veto %s \n", error.what());
    return 3;
}
