// Speed of the tokenizer: loading, encoding (cold: a new thread, whose cache is empty; warm: again) and decoding, on
// text made here of English, code and Chinese. One JSON line per case.
//
//     bench_tokenizer TOKENIZER_FOLDER...
#include "engine/text/tokenizer.h"

#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start)
{
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Words by Zipf's law out of a made-up lexicon, so that pieces repeat as they do in real text.
std::string words(std::size_t bytes, bool code)
{
    std::mt19937 random(1);
    static const char* kSyllables[] = {"the", "in", "ing", "re", "con", "tion", "er", "al", "pro", "st", "an", "or",
        "est", "ed", "ly", "com", "per", "ment", "ous", "able", "un", "de", "con", "ist", "ic", "ate", "en", "ma", "to",
        "ri"};
    std::vector<std::string> lexicon;
    for (int i = 0; i < 20'000; ++i) {
        std::string word;
        for (auto n = 1 + random() % 3 + (i > 200); n; --n)
            word += kSyllables[random() % std::size(kSyllables)];
        lexicon.push_back(word);
    }
    std::string text;
    std::uniform_real_distribution<double> uniform(0, 1);
    while (text.size() < bytes) {
        const double u = uniform(random);
        text += lexicon[static_cast<std::size_t>(static_cast<double>(lexicon.size()) * u * u * u * u)];
        const unsigned end = static_cast<unsigned>(random() % 24);
        text += code ? (end < 4    ? "("
                        : end < 8  ? ");\n    "
                        : end < 11 ? " = "
                        : end < 13 ? "->"
                                   : " ")
                     : (end < 1        ? ".\n\n"
                             : end < 3 ? ". "
                             : end < 5 ? ", "
                             : end < 6 ? " 1984 "
                                       : " ");
    }
    return text;
}

std::string chinese(std::size_t bytes)
{
    std::mt19937 random(2);
    std::string text;
    std::uniform_real_distribution<double> uniform(0, 1);
    while (text.size() < bytes) {
        for (unsigned n = 6 + static_cast<unsigned>(random() % 24); n; --n) {
            const double u = uniform(random);
            const unsigned c = 0x4E00 + static_cast<unsigned>(3500 * u * u * u) * 5;
            text += static_cast<char>(0xE0 | c >> 12);
            text += static_cast<char>(0x80 | (c >> 6 & 63));
            text += static_cast<char>(0x80 | (c & 63));
        }
        text += random() % 3 ? "，" : "。";
    }
    return text;
}

} // namespace

int main(int argc, char** argv)
{
    constexpr std::size_t kBytes = 4u << 20;
    const std::pair<const char*, std::string> texts[] = {
        {"english", words(kBytes, false)}, {"code", words(kBytes, true)}, {"chinese", chinese(kBytes)}};
    for (int i = 1; i < argc; ++i) {
        const auto start = Clock::now();
        const auto tokenizer = puna::Tokenizer::fromFolder(argv[i]);
        if (!tokenizer) {
            std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
            return 1;
        }
        std::printf("{\"op\":\"load\",\"tokenizer\":\"%s\",\"ms\":%.1f}\n", argv[i], since(start) * 1e3);
        for (const auto& [name, text] : texts) {
            std::vector<puna::TokenId> ids;
            double seconds[3] = {};
            std::thread([&] {
                for (int pass = 0; pass < 2; ++pass) {
                    const auto begin = Clock::now();
                    ids = tokenizer->encode(text, {});
                    seconds[pass] = since(begin);
                }
            }).join();
            const auto begin = Clock::now();
            const std::string back = tokenizer->decode(ids, false);
            seconds[2] = since(begin);
            const double megabytes = static_cast<double>(text.size()) / 1e6;
            const char* const ops[] = {"encode cold", "encode warm", "decode"};
            for (int op = 0; op < 3; ++op)
                std::printf(
                    "{\"op\":\"%s\",\"tokenizer\":\"%s\",\"text\":\"%s\",\"tokens\":%zu,\"ms\":%.1f,\"MB/s\":%.1f}\n",
                    ops[op], argv[i], name, ids.size(), seconds[op] * 1e3, megabytes / seconds[op]);
            if (back.empty())
                return 1;
        }
    }
    return 0;
}
