// Opening models: good ones of every format, and folders and files made by someone who means harm.
#include "engine/cpu/cpu_executor.h"
#include "engine/model/model_files.h"
#include "engine/model/safetensors.h"
#include "engine/quant/decode.h"
#include "tests/support/model_writer.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

#include <QElapsedTimer>
#include <QTest>

#include <functional>
#include <sys/stat.h>
#include <unistd.h>

using namespace puna;
using namespace puna::test;
namespace fs = std::filesystem;

namespace {

// The tensors of a safetensors file, to be changed and written again.
std::vector<FileTensor> readTensors(const fs::path& path)
{
    const auto opened = Safetensors::open(path);
    std::vector<FileTensor> tensors;
    for (const auto& [name, view] : (*opened)->tensors()) {
        FileTensor t {name, std::string(info(view.dtype).name), {}, {}};
        t.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
        t.data.assign(view.data, view.data + view.bytes());
        tensors.push_back(std::move(t));
    }
    return tensors;
}

FileTensor& named(std::vector<FileTensor>& tensors, std::string_view name)
{
    for (FileTensor& t : tensors)
        if (t.name == name)
            return t;
    std::abort();
}

template <class T> void setElement(FileTensor& t, std::size_t i, T value)
{
    std::memcpy(t.data.data() + i * sizeof(T), &value, sizeof(T));
}

template <class T> T element(const FileTensor& t, std::size_t i)
{
    T value;
    std::memcpy(&value, t.data.data() + i * sizeof(T), sizeof(T));
    return value;
}

using Change = std::function<void(std::vector<FileTensor>&)>;
constexpr const char* kDown = "model.layers.0.mlp.down_proj."; // EXL2 with groups of 8, 4 and 2 bits

} // namespace

Q_DECLARE_METATYPE(Change)

class tst_model_files : public QObject {
    Q_OBJECT

    TemporaryFolder m_folder;

    // Opens what must not be opened; the sentence, or what was wrong with the refusal.
    static QByteArray refusal(const fs::path& path)
    {
        QElapsedTimer timer;
        timer.start();
        const auto opened = openModelFiles(path);
        if (opened)
            return "it was accepted";
        const QByteArray message = QByteArray::fromStdString(opened.error().message);
        if (timer.elapsed() > 2000)
            return "it took " + QByteArray::number(timer.elapsed()) + " ms";
        if (message.isEmpty() || message.contains('\n') || message.size() > 500
            || !(message.endsWith('.') || message.endsWith(").")))
            return "not a sentence: " + message;
        return message;
    }

    fs::path fresh(const char* name)
    {
        const fs::path path = m_folder.path() / name;
        fs::remove_all(path);
        fs::create_directories(path);
        return path;
    }

private slots:
    void everyFormatOpens_data()
    {
        QTest::addColumn<int>("format");
        QTest::addColumn<QString>("name");
        QTest::addColumn<double>("bpw");
        QTest::addColumn<int>("head_bits");
        QTest::newRow("fp16") << int(TinyFormat::fp16) << "FP16" << 16.0 << 16;
        QTest::newRow("exl2") << int(TinyFormat::exl2) << "EXL2" << 5.05 << 6;
        QTest::newRow("gptq") << int(TinyFormat::gptq) << "GPTQ" << 5.12 << 16;
        QTest::newRow("gguf") << int(TinyFormat::gguf) << "GGUF F16" << 16.0 << 16;
        QTest::newRow("gguf_q8_0") << int(TinyFormat::gguf_q8_0) << "GGUF Q8_0" << 8.5 << 8;
        QTest::newRow("gguf_q4_1") << int(TinyFormat::gguf_q4_1) << "GGUF Q4_1" << 5.0 << 4;
    }
    void everyFormatOpens()
    {
        QFETCH(int, format);
        QFETCH(QString, name);
        QFETCH(double, bpw);
        QFETCH(int, head_bits);
        const fs::path path = writeTinyModel(fresh("good"), {.format = static_cast<TinyFormat>(format)});
        const auto opened = openModelFiles(path);
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        const ModelInfo& i = opened->info;
        QVERIFY(i.ok && i.problems.empty());
        QCOMPARE(QString::fromStdString(i.format), name);
        QVERIFY2(std::abs(i.bpw - bpw) < 0.01, qPrintable(QString::number(i.bpw)));
        QCOMPARE(i.head_bits, head_bits);
        QCOMPARE(i.layers, 2);
        QCOMPARE(i.hidden_size, 64);
        QCOMPARE(i.vocab_size, static_cast<int>(tinyVocabulary().tokens.size()));
        QVERIFY(i.vocab_size % 32 != 0); // so that a padded head is tried
        QCOMPARE(i.max_context, 2048);
        QCOMPARE(i.weight_bytes.count, opened->weights.bytes);
        QVERIFY(opened->weights.bytes > 10'000
            && opened->weights.bytes
                < static_cast<std::int64_t>(fs::file_size(fs::is_directory(path) ? path / "model.safetensors" : path)));
        QCOMPARE(opened->weights.layers.size(), 2u);
        QCOMPARE(opened->weights.head.out_features, i.vocab_size);
    }

    void aStaleIndexIsIgnored()
    {
        const fs::path path = writeTinyModel(fresh("index"), {.format = TinyFormat::exl2});
        writeFile(path / "model.safetensors.index.json",
            R"({"weight_map": {"lm_head.weight": "../../../etc/passwd", "a": "model-00001-of-00007.safetensors"}})");
        QVERIFY(openModelFiles(path).has_value());
    }

    void shardsAreMergedWhateverTheirNames()
    {
        const fs::path path = writeTinyModel(fresh("shards"));
        const std::vector<FileTensor> tensors = readTensors(path / "model.safetensors");
        fs::remove(path / "model.safetensors");
        writeSafetensors(path / "b.safetensors", std::span(tensors).first(5));
        writeSafetensors(path / "a-00007-of-00002.safetensors", std::span(tensors).subspan(5));
        const auto opened = openModelFiles(path);
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
    }

    void aLayerMayBeInAnotherFormat()
    {
        const fs::path path = writeTinyModel(fresh("mixed"), {.format = TinyFormat::exl2});
        const fs::path plain = writeTinyModel(fresh("plain"));
        std::vector<FileTensor> tensors = readTensors(path / "model.safetensors");
        std::vector<FileTensor> halves = readTensors(plain / "model.safetensors");
        std::erase_if(tensors, [](const FileTensor& t) { return t.name.starts_with("lm_head."); });
        tensors.push_back(named(halves, "lm_head.weight"));
        writeSafetensors(path / "model.safetensors", tensors);
        const auto opened = openModelFiles(path);
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        QCOMPARE(opened->info.format, std::string("EXL2"));
        QCOMPARE(opened->info.head_bits, 16);
    }

    void biasesAreReadWhereTheConfigHasThem()
    {
        const fs::path path = writeTinyModel(fresh("bias"));
        std::vector<FileTensor> tensors = readTensors(path / "model.safetensors");
        for (int l = 0; l < 2; ++l)
            for (const auto& [name, size] : {std::pair {"q", 64}, {"k", 32}, {"v", 32}, {"o", 64}})
                tensors.push_back({"model.layers." + std::to_string(l) + ".self_attn." + name + "_proj.bias", "F16",
                    {size}, ByteString(static_cast<std::size_t>(2 * size), std::byte {1})});
        writeSafetensors(path / "model.safetensors", tensors);
        QVERIFY(refusal(path).contains("says that such layers have no bias"));
        std::string config = readFile(path / "config.json");
        config.replace(config.find("\"attention_bias\": false"), 23, "\"attention_bias\": true ");
        writeFile(path / "config.json", config);
        const auto opened = openModelFiles(path);
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        QCOMPARE(opened->weights.layers[1].k.bias.elements(), 32);
        QVERIFY(!opened->weights.layers[1].gate.bias);
        tensors.pop_back();
        writeSafetensors(path / "model.safetensors", tensors);
        QVERIFY(refusal(path).contains("'model.layers.1.self_attn.o_proj.bias' is missing"));
    }

    void hostileLayersAreRefused_data()
    {
        QTest::addColumn<int>("format");
        QTest::addColumn<Change>("change");
        QTest::addColumn<QByteArray>("expected");
        const auto add = [](const char* name, TinyFormat format, const char* expected, Change change) {
            QTest::newRow(name) << int(format) << change << QByteArray(expected);
        };
        const auto exl2 = [&](const char* name, const char* part, const char* expected, auto change) {
            add(name, TinyFormat::exl2, expected,
                [=](std::vector<FileTensor>& t) { change(named(t, std::string(kDown) + part)); });
        };
        for (const int bits : {0, 1, 7, 9, 16, 255, 65535})
            add(qPrintable(QString("%1 bits").arg(bits)), TinyFormat::exl2,
                qPrintable(QString("with %1 bits, expected 2, 3, 4").arg(bits)), [=](std::vector<FileTensor>& t) {
                    setElement(named(t, std::string(kDown) + "q_groups"), 0, static_cast<std::uint16_t>(bits));
                });
        exl2("widths that rise", "q_groups", "more bits than the one before",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 4, 8); });
        exl2("a group that does not begin at 0", "q_groups", "expected rising rows",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 1, 1); });
        exl2("groups that fall", "q_groups", "expected rising rows",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 5, 3); });
        exl2("an empty group", "q_groups", "expected rising rows",
            [](FileTensor& t) { setElement(t, 5, element<std::uint16_t>(t, 3)); });
        exl2("a group past the end", "q_groups", "expected rising rows",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 5, 60000); });
        exl2("a group of 33 rows", "q_groups", "multiples of 32",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 3, 9); });
        exl2("a permutation with a repeat", "q_invperm", "there twice",
            [](FileTensor& t) { setElement(t, 0, element<std::int32_t>(t, 1)); });
        exl2("a permutation out of range", "q_invperm", "96 at 7 of q_invperm",
            [](FileTensor& t) { setElement<std::int32_t>(t, 7, 96); });
        exl2(
            "a permutation with -1", "q_invperm", "-1 at 7", [](FileTensor& t) { setElement<std::int32_t>(t, 7, -1); });
        exl2("an infinite scale", "q_scale_max", "not a finite number",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 1, 0x7c00); });
        exl2("a scale that is no number", "q_scale_max", "not a finite number",
            [](FileTensor& t) { setElement<std::uint16_t>(t, 0, 0xfe00); });
        exl2("a short permutation", "q_invperm", "lacks a q_invperm", [](FileTensor& t) {
            t.shape = {64};
            t.data.resize(256);
        });
        exl2("fewer words", "q_weight", "", [](FileTensor& t) {
            t.shape[0] -= 1;
            t.data.resize(t.data.size() - 256);
        });
        exl2("another number of columns", "q_weight", "64 columns", [](FileTensor& t) {
            t.shape = {t.shape[0] * 2, 32};
        });
        exl2("words of another type", "q_weight", "q_weight of I32", [](FileTensor& t) { t.dtype = "F32"; });
        exl2("scales of another type", "q_scale_max", "q_scale_max of F16", [](FileTensor& t) { t.dtype = "I16"; });
        exl2("no groups", "q_scale_max", "0 groups", [](FileTensor& t) {
            t.shape = {0};
            t.data.clear();
        });
        for (const char* part : {"q_scale", "q_scale_max", "q_groups", "q_invperm"})
            exl2(qPrintable(QString("without %1").arg(part)), part, "lacks a q_", [](FileTensor& t) { t.name += "x"; });

        const auto gptq = [&](const char* name, const char* part, const char* expected, auto change) {
            add(name, TinyFormat::gptq, expected,
                [=](std::vector<FileTensor>& t) { change(named(t, std::string(kDown) + part)); });
        };
        gptq("g_idx out of range", "g_idx", "3 at 5 of g_idx, expected 0 to 2",
            [](FileTensor& t) { setElement<std::int32_t>(t, 5, 3); });
        gptq("g_idx of -1", "g_idx", "-1 at 5", [](FileTensor& t) { setElement<std::int32_t>(t, 5, -1); });
        gptq("g_idx of 2^31 - 1", "g_idx", "2147483647 at 95",
            [](FileTensor& t) { setElement<std::int32_t>(t, 95, 0x7fffffff); });
        gptq("a short g_idx", "g_idx", "g_idx that is not I32 [96]", [](FileTensor& t) {
            t.shape = {95};
            t.data.resize(380);
        });
        gptq("a width that does not exist", "qweight", "not a width", [](FileTensor& t) {
            t.shape[0] = 15;
            t.data.resize(15 * 64 * 4);
        });
        gptq("the wrong zero points", "qzeros", "lacks a qzeros", [](FileTensor& t) {
            t.shape = {t.shape[1], t.shape[0]};
        });
        gptq("AWQ's orientation", "qweight", "AWQ?", [](FileTensor& t) { t.shape = {96, 8}; });
        gptq("no scales", "scales", "lacks scales", [](FileTensor& t) { t.name += "x"; });

        const auto plain = [&](const char* name, const char* tensor, const char* expected, auto change) {
            add(name, TinyFormat::fp16, expected, [=](std::vector<FileTensor>& t) { change(named(t, tensor)); });
        };
        plain("a layer of another shape", "model.layers.1.self_attn.k_proj.weight",
            "'model.layers.1.self_attn.k_proj.weight' is [64, 32], expected [32, 64]", [](FileTensor& t) {
                t.shape = {64, 32};
            });
        plain("a layer of rank 1", "model.layers.1.self_attn.k_proj.weight", "is [2048], expected [32, 64]",
            [](FileTensor& t) { t.shape = {2048}; });
        plain("a norm of another size", "model.norm.weight", "'model.norm.weight' is [32, 2], expected [64]",
            [](FileTensor& t) {
                t.shape = {32, 2};
            });
        plain("a layer of integers", "lm_head.weight", "is I16, which Puna cannot compute with",
            [](FileTensor& t) { t.dtype = "I16"; });
        plain("a layer in FP8", "model.layers.0.mlp.up_proj.weight",
            "is F8_E4M3 [96, 64], which Puna cannot compute with", [](FileTensor& t) {
                t.dtype = "F8_E4M3";
                t.data.resize(96 * 64);
            });
        plain("no embedding", "model.embed_tokens.weight", "'model.embed_tokens.weight' is missing",
            [](FileTensor& t) { t.name = "x"; });
        plain("no head", "lm_head.weight", "'lm_head.weight' is missing", [](FileTensor& t) { t.name = "x"; });
        plain("no layer 1", "model.layers.1.mlp.down_proj.weight", "'model.layers.1.mlp.down_proj.weight' is missing",
            [](FileTensor& t) { t.name = "x"; });
        plain("an empty embedding", "model.embed_tokens.weight", "has 0 rows", [](FileTensor& t) {
            t.shape = {0, 64};
            t.data.clear();
        });
        plain("a head of another vocabulary", "lm_head.weight", "expected [", [](FileTensor& t) {
            t.shape[0] -= 1;
            t.data.resize(t.data.size() - 128);
        });
    }
    void hostileLayersAreRefused()
    {
        QFETCH(int, format);
        QFETCH(Change, change);
        QFETCH(QByteArray, expected);
        const fs::path path = writeTinyModel(fresh("hostile"), {.format = static_cast<TinyFormat>(format)});
        std::vector<FileTensor> tensors = readTensors(path / "model.safetensors");
        change(tensors);
        writeSafetensors(path / "model.safetensors", tensors);
        const QByteArray message = refusal(path);
        QVERIFY2(message.contains(expected) && (message.contains('\'') || message.contains("model")), message);
        QVERIFY2(!message.startsWith("it was") && !message.startsWith("not a sentence"), message);
    }

    void everyTruncationIsRefused()
    {
        const fs::path path = writeTinyModel(fresh("truncated"), {.format = TinyFormat::exl2});
        const std::string whole = readFile(path / "model.safetensors");
        for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
            writeFile(path / "model.safetensors", std::string_view(whole).substr(0, size));
            QVERIFY2(refusal(path).startsWith("model.safetensors: "), refusal(path));
        }
        const fs::path gguf = writeTinyModel(fresh("truncated"), {.format = TinyFormat::gguf_q4_1});
        const std::string bytes = readFile(gguf);
        for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 97) {
            writeFile(gguf, std::string_view(bytes).substr(0, size));
            QVERIFY2(refusal(gguf).startsWith("tiny.gguf: "), refusal(gguf));
        }
    }

    void thingsThatAreNoModel()
    {
        const fs::path path = fresh("none");
        QVERIFY(refusal(path / "absent").contains("no such file or folder"));
        QVERIFY(refusal(path).contains("the folder is empty"));
        writeFile(path / "README.md", "hello");
        QVERIFY(refusal(path).contains("no *.safetensors files"));
        writeFile(path / "pytorch_model.bin", "\x80\x02}q");
        QVERIFY(refusal(path).contains("pytorch_model.bin") && refusal(path).contains("pickle"));
        writeFile(path / "model.gguf", "GGUF");
        QVERIFY(refusal(path).contains("open 'model.gguf' itself"));
        fs::remove(path / "model.gguf");
        QVERIFY(refusal(path / "pytorch_model.bin").contains("pickle"));
        QVERIFY(refusal(path / "README.md").contains("does not begin with 'GGUF'"));
        writeFile(path / "model.safetensors", "PK\x03\x04 zip zip zip");
        QVERIFY(refusal(path).contains("config.json is missing"));
        QVERIFY(refusal(path / "model.safetensors").contains("open the folder"));
        writeFile(path / "config.json", readFile(writeTinyModel(fresh("config")) / "config.json"));
        QVERIFY(refusal(path).contains("zip archive"));
        writeFile(path / "config.json", "{\"architectures\": [\"MambaForCausalLM\"]}");
        QVERIFY(refusal(path).contains("'MambaForCausalLM' is not supported"));
        fs::resize_file(path / "config.json", 40u << 20);
        QVERIFY(refusal(path).contains("41943040 bytes, expected at most"));
        QVERIFY(refusal("/dev/zero").contains("not a regular file"));
        QVERIFY(refusal("/dev/null").contains("not a regular file"));
        QCOMPARE(mkfifo((path / "pipe.gguf").c_str(), 0600), 0);
        QVERIFY(refusal(path / "pipe.gguf").contains("not a regular file"));
        fs::create_symlink(path / "loop.gguf", path / "loop.gguf");
        QVERIFY(!refusal(path / "loop.gguf").startsWith("it was"));
    }

    void missingShardsAreCounted()
    {
        const fs::path path = writeTinyModel(fresh("incomplete"));
        std::vector<FileTensor> tensors = readTensors(path / "model.safetensors");
        fs::remove(path / "model.safetensors");
        writeSafetensors(path / "model-00002-of-00003.safetensors", std::span(tensors).first(4));
        QVERIFY2(refusal(path).contains("only 1 of 3 weight files are there"), refusal(path));
    }

    void aNameInTwoFilesIsRefused()
    {
        const fs::path path = writeTinyModel(fresh("twice"));
        fs::copy_file(path / "model.safetensors", path / "copy.safetensors");
        QVERIFY2(refusal(path).contains("another file of the folder holds too"), refusal(path));
    }

    void unreadableThingsAreNamed()
    {
        if (geteuid() == 0)
            QSKIP("root can read everything");
        const fs::path path = writeTinyModel(fresh("unreadable"));
        fs::permissions(path / "model.safetensors", fs::perms::none);
        QVERIFY(refusal(path).contains("cannot be opened"));
        fs::permissions(path, fs::perms::none);
        QVERIFY(refusal(path).contains("cannot be read"));
        fs::permissions(path, fs::perms::owner_all);
    }

    void linksLeadNowhereElse()
    {
        const fs::path outside = writeTinyModel(fresh("outside"));
        const fs::path path = writeTinyModel(fresh("links"));
        fs::remove(path / "model.safetensors");
        fs::create_symlink(outside / "model.safetensors", path / "model.safetensors");
        QVERIFY2(refusal(path).contains("a link to a file outside"), refusal(path));
        fs::remove(path / "model.safetensors");
        fs::create_symlink("model.safetensors", path / "model.safetensors");
        QVERIFY2(!refusal(path).startsWith("it was"), refusal(path));
        fs::remove(path / "model.safetensors");
        fs::rename(outside / "model.safetensors", path / "model.safetensors");
        QVERIFY(openModelFiles(path).has_value());
        fs::remove(path / "config.json");
        fs::create_symlink(outside / "config.json", path / "config.json");
        QVERIFY2(refusal(path).contains("a link to a file outside"), refusal(path));
    }

    // models--a--b/snapshots/revision/file -> ../../blobs/hash, as huggingface_hub lays it out.
    void theHuggingFaceCacheOpens()
    {
        const fs::path source = writeTinyModel(fresh("source"));
        const fs::path cache = fresh("models--a--b");
        const fs::path snapshot = cache / "snapshots" / "0123";
        fs::create_directories(snapshot);
        fs::create_directories(cache / "blobs");
        for (const char* name : {"config.json", "model.safetensors"}) {
            fs::rename(source / name, cache / "blobs" / (std::string("hash-") + name));
            fs::create_symlink(fs::path("../../blobs") / (std::string("hash-") + name), snapshot / name);
        }
        const auto opened = openModelFiles(snapshot);
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
    }

    void aHugeSparseFileIsQuick()
    {
        const fs::path path = m_folder.path() / "sparse.gguf";
        writeFile(path, "GGUF");
        std::error_code failed;
        fs::resize_file(path, std::uintmax_t {1} << 40, failed);
        if (failed)
            QSKIP("no sparse files here");
        QVERIFY2(refusal(path).contains("version 0"), refusal(path));
        std::string head = "GGUF";
        for (const std::uint64_t n : {std::uint64_t {3}, std::uint64_t {1} << 40, std::uint64_t {1} << 39})
            head.append(reinterpret_cast<const char*>(&n), n == 3 ? 4 : 8);
        writeFile(path, head);
        fs::resize_file(path, std::uintmax_t {1} << 40, failed);
        QVERIFY2(refusal(path).contains("claims"), refusal(path));
        fs::remove(path);
    }

    void namesThatMislead()
    {
        const fs::path path = writeTinyModel(fresh("names"));
        const fs::path odd = m_folder.path() / "a\u202egpj.\nb";
        fs::remove_all(odd);
        fs::rename(path, odd);
        auto opened = openModelFiles(odd);
        QVERIFY(opened.has_value());
        QCOMPARE(opened->info.name, std::string("a?gpj.?b"));
        fs::remove(odd / "config.json");
        QVERIFY(refusal(odd).contains("a?gpj.?b"));
    }

    void referenceModelsOpen()
    {
        int seen = 0;
        for (const char* name : {"hf-fp16", "exl2-3.0", "gptq-v1", "gptq-v2", "stories", "synthetic-tiny-2.5"}) {
            const fs::path path = model(name);
            if (path.empty())
                continue;
            ++seen;
            QElapsedTimer timer;
            timer.start();
            const auto opened = openModelFiles(path);
            QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
            QVERIFY2(timer.elapsed() < 1000, name);
        }
        if (seen == 0)
            QSKIP("no reference models are here");
    }
};

QTEST_GUILESS_MAIN(tst_model_files)
#include "tst_model_files.moc"
