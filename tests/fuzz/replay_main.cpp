// Replays a corpus and seeded mutations of it through LLVMFuzzerTestOneInput: fuzz_<name> CORPUS_FOLDER [MUTATIONS
// [SEED]]
//
// Without a number it mutates 5,000 times or for 3 seconds, whichever ends first. An input that breaks the reader ends
// the program by signal or sanitizer; it is in last-input.bin beside the program's working directory then.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

class Mutator {
public:
    Mutator(const std::vector<Input>& corpus, std::uint64_t seed)
        : m_corpus(corpus)
        , m_random(seed)
    {
    }

    Input next()
    {
        Input input = m_corpus[below(m_corpus.size())];
        for (std::size_t i = 1 + below(4); i-- > 0 && !input.empty();)
            change(input);
        return input;
    }

private:
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(m_random() % n); }

    void change(Input& input)
    {
        const std::size_t at = below(input.size());
        const std::size_t rest = input.size() - at;
        switch (below(7)) {
        case 0:
            input[at] ^= static_cast<std::uint8_t>(1u << below(8));
            break;
        case 1:
            input[at] = static_cast<std::uint8_t>(m_random());
            break;
        case 2: { // a number that tends to break things, in one of four widths
            constexpr std::uint64_t kNumbers[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff,
                0x80000000, 0xffffffff, 0x7fffffffffffffff, 0x8000000000000000, ~std::uint64_t {0}};
            const std::uint64_t number = kNumbers[below(std::size(kNumbers))] + below(3) - 1;
            std::memcpy(input.data() + at, &number, std::min(rest, std::size_t {1} << below(4)));
            break;
        }
        case 3:
            input.resize(at);
            break;
        case 4:
            input.erase(input.begin() + static_cast<std::ptrdiff_t>(at),
                input.begin() + static_cast<std::ptrdiff_t>(at + 1 + below(std::min<std::size_t>(rest, 16))));
            break;
        case 5: { // a piece again
            const Input piece(input.begin() + static_cast<std::ptrdiff_t>(at),
                input.begin() + static_cast<std::ptrdiff_t>(at + 1 + below(std::min<std::size_t>(rest, 64))));
            const std::size_t to = below(input.size());
            input.insert(input.begin() + static_cast<std::ptrdiff_t>(to), piece.begin(), piece.end());
            break;
        }
        case 6: { // the rest from another input
            const Input& other = m_corpus[below(m_corpus.size())];
            input.resize(at);
            if (at < other.size())
                input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
            break;
        }
        }
    }

    const std::vector<Input>& m_corpus;
    std::mt19937_64 m_random;
};

void keep(const Input& input)
{
    std::ofstream out("last-input.bin", std::ios::binary);
    out.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s CORPUS_FOLDER_OR_FILE [MUTATIONS [SEED]]\n", argv[0]);
        return 2;
    }
    const std::filesystem::path path = argv[1];
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(path))
        for (const auto& entry : std::filesystem::directory_iterator(path))
            files.push_back(entry.path());
    else
        files.push_back(path);
    std::sort(files.begin(), files.end());
    std::vector<Input> corpus;
    for (const std::filesystem::path& file : files) {
        std::ifstream in(file, std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
    }
    if (corpus.empty()) {
        std::fprintf(stderr, "%s: no inputs\n", argv[1]);
        return 1;
    }

    const bool by_hand = argc > 2; // then inputs are kept, to be found after a crash
    const long mutations = by_hand ? std::atol(argv[2]) : 5000;
    Mutator mutator(corpus, argc > 3 ? static_cast<std::uint64_t>(std::atoll(argv[3])) : 1);
    const auto begin = std::chrono::steady_clock::now();
    long done = 0;
    for (; done < mutations; ++done) {
        if (!by_hand && std::chrono::steady_clock::now() - begin > std::chrono::seconds(3))
            break;
        const Input input = mutator.next();
        if (by_hand)
            keep(input);
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    std::printf("%zu inputs of the corpus, %ld mutations\n", corpus.size(), done);
    return 0;
}
