// Checks a Steadfast permit with libsodium alone: signature, names, both clocks, and that it was made out for these
// very bytes. What it leaves to you: remember each nonce (printed on success) and refuse it the second time.
//   g++ -std=c++17 -O2 verify_permit.cpp -lsodium -o verify_permit
//   verify_permit TOKEN PUBLIC_KEY_HEX ISSUER AUDIENCE INSTRUCTION_FILE IMAGE_FILE PLAN_FILE
// Exit status: 0 the plan may run once, 1 it must not. The layout is in the documentation of `permit::claims`.
#include <sodium.h>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
using Bytes = std::string;
static void need(bool met, const char* why) { if (!met) throw std::runtime_error(why); }
static const uint8_t* raw(const Bytes& bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }
static Bytes file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  need(bool(in), "a file cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}
struct Reader {  // The part of CBOR a permit uses: heads of shortest form, definite lengths.
  const Bytes& data;
  size_t at = 0;
  uint8_t byte() { need(at < data.size(), "cut short"); return uint8_t(data[at++]); }
  int major() const { return at < data.size() ? uint8_t(data[at]) >> 5 : -1; }
  uint64_t head(int wanted) {
    need(major() == wanted, "another type than expected");
    uint8_t info = byte() & 31;
    if (info < 24) return info;
    need(info < 28, "indefinite length");
    uint64_t value = 0;
    for (int n = 1 << (info - 24); n > 0; --n) value = value << 8 | byte();
    need(value >= (info == 24 ? 24 : 1ULL << (4 << (info - 24))), "not the shortest form");
    return value;
  }
  Bytes string(int wanted) {
    uint64_t size = head(wanted);
    need(size <= data.size() - at, "cut short");
    return data.substr((at += size) - size, size);
  }
};
static Bytes sha256(const Bytes& bytes) {
  Bytes digest(32, '\0');
  crypto_hash_sha256(reinterpret_cast<uint8_t*>(&digest[0]), raw(bytes), bytes.size());
  return digest;
}
static Bytes hex(const Bytes& bytes) {
  Bytes digits(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(&digits[0], digits.size(), raw(bytes), bytes.size());
  return digits.substr(0, 2 * bytes.size());
}
static Bytes check(char** arg) {
  Bytes token = file(arg[1]), key(32, '\0');
  need(token.size() <= 1536 && !sodium_hex2bin(reinterpret_cast<uint8_t*>(&key[0]), 32, arg[2], 64, nullptr, nullptr, nullptr) && hex(key) == arg[2], "too large, or a bad key");
  Reader outer{token}; need(outer.head(6) == 18 && outer.head(4) == 4, "not a COSE_Sign1");
  Bytes header = outer.string(2);
  need(outer.head(5) == 0 && header == Bytes("\xa2\x01\x27\x04\x48", 5) + sha256(key).substr(0, 8), "not EdDSA, or another key");
  Bytes payload = outer.string(2), signature = outer.string(2);
  need(outer.at == token.size() && signature.size() == 64 && payload.size() >= 256, "malformed");
  Bytes to_sign = Bytes("\x84\x6aSignature1\x4d", 13) + header + "\x40\x59" + char(payload.size() >> 8) + char(payload.size()) + payload;
  need(!crypto_sign_verify_detached(raw(signature), raw(to_sign), to_sign.size(), raw(key)), "bad signature");
  Reader inner{payload}; std::map<int64_t, Bytes> text; std::map<int64_t, uint64_t> number;
  for (uint64_t left = inner.head(5); left > 0; --left) {
    int64_t label = inner.major() == 1 ? -1 - int64_t(inner.head(1)) : int64_t(inner.head(0));
    need(!text.count(label) && !number.count(label), "a claim twice");
    if (inner.major() == 0) number[label] = inner.head(0); else text[label] = inner.string(inner.major() == 3 ? 3 : 2);
  }
  need(inner.at == payload.size() && number.at(-70000) == 1, "malformed");
  need(text.at(1) == arg[3] && text.at(3) == arg[4], "another issuer or audience");
  uint64_t now = time(nullptr), issued = number.at(6), expires = number.at(4);
  need(issued <= now && now < expires && expires - issued <= 600, "expired, or not yet valid");
  // Where the guard runs on another machine, leave out these three lines.
  Bytes boot; for (char c : file("/proc/sys/kernel/random/boot_id")) if (isxdigit(c)) boot += c;
  timespec t; clock_gettime(CLOCK_BOOTTIME, &t);
  need(boot == hex(text.at(-70008)) && uint64_t(t.tv_sec) * 1000000000 + t.tv_nsec < number.at(-70009), "another boot, or past the deadline");
  Bytes instruction = sha256(file(arg[5])), image = sha256(file(arg[6])), plan = sha256(file(arg[7]));
  need(text.at(-70002) == instruction && text.at(-70003) == image && text.at(-70001) == plan, "made out for another triple");
  need(text.at(-70004) == sha256(Bytes("steadfast/triple/1\0", 19) + instruction + image + plan), "made out for another triple");
  return hex(text.at(7));
}
int main(int count, char** arg) {
  try { need(count == 8 && sodium_init() >= 0, "usage: see the top of this file"); printf("permit, nonce %s\n", check(arg).c_str()); return 0; }
  catch (const std::exception& error) { printf("refused: %s\n", error.what()); return 1; }
}
