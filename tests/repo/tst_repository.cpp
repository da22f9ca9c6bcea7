// Rules about the source tree that no compiler checks.
#include "tests/support/paths.h"

#include <QTest>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

// Declared before anything else: moc loses its way in the raw strings below.
class TestRepository : public QObject {
    Q_OBJECT

private slots:
    void theTreeIsThere();
    void engineAndCudaKnowNoQt();
    void cudaHeadersStayInCuda();
    void everySourceIsInACMakeList();
    void qmlShowsTextAsText_data();
    void qmlShowsTextAsText();
    void nothingMakesCodeOrOpensLinksBehindTheGate();
    void noDebugOutputIsLeft();
    void noPathsOfSomebodysMachine();
};

namespace fs = std::filesystem;

namespace {

constexpr const char* kLinkGate = "ui/desktop.cpp"; // allows schemes, and is called after a person has seen the host

struct File {
    std::string path; // from the root
    std::string text;
};

bool isText(const fs::path& path)
{
    static const std::vector<std::string> kTypes {".cpp", ".h", ".cu", ".cuh", ".inl", ".inc", ".qml", ".js", ".txt",
        ".md", ".json", ".py", ".sh", ".cmake", ".in", ".xml", ".desktop", ".sql", ".yml"};
    return path.extension().empty() || std::find(kTypes.begin(), kTypes.end(), path.extension()) != kTypes.end();
}

const std::vector<File>& files()
{
    static const std::vector<File> all = [] {
        std::vector<File> found;
        const fs::path root = puna::test::source("");
        const auto add = [&](const fs::path& path) {
            std::ifstream file(path, std::ios::binary);
            std::ostringstream text;
            text << file.rdbuf();
            found.push_back({fs::relative(path, root).generic_string(), text.str()});
        };
        for (const char* folder : {"engine", "cuda", "app", "ui", "tests", "packaging", "resources", ".ci"})
            if (fs::is_directory(root / folder))
                for (const auto& entry : fs::recursive_directory_iterator(root / folder))
                    if (entry.is_regular_file() && isText(entry.path())
                        && entry.path().string().find("/corpus/") == std::string::npos
                        && entry.path().string().find("/__pycache__/") == std::string::npos)
                        add(entry.path());
        for (const char* name : {"CMakeLists.txt", "CMakePresets.json", "README.md"})
            add(root / name);
        return found;
    }();
    return all;
}

bool inFolder(const File& file, std::string_view folder)
{
    return file.path.rfind(std::string(folder) + "/", 0) == 0;
}

bool hasType(const File& file, std::initializer_list<std::string_view> types)
{
    return std::any_of(
        types.begin(), types.end(), [&](std::string_view type) { return fs::path(file.path).extension() == type; });
}

// C++, CUDA and QML without comments and with empty strings, so that only code is looked at. Keeps line ends.
std::string code(const std::string& text)
{
    static const std::regex kNoise(R"rx(//[^\n]*|/\*[\s\S]*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')rx");
    std::string out;
    auto at = text.cbegin();
    for (auto match = std::sregex_iterator(text.begin(), text.end(), kNoise); match != std::sregex_iterator();
         ++match) {
        const std::string noise = match->str();
        out.append(at, (*match)[0].first);
        if (noise[0] != '/')
            out += "\"\"";
        out.append(static_cast<std::size_t>(std::count(noise.begin(), noise.end(), '\n')), '\n');
        at = (*match)[0].second;
    }
    return out.append(at, text.cend());
}

std::vector<std::string> matches(const File& file, const std::string& text, const std::regex& pattern)
{
    std::vector<std::string> found;
    for (auto match = std::sregex_iterator(text.begin(), text.end(), pattern); match != std::sregex_iterator();
         ++match) {
        const auto line = 1 + std::count(text.begin(), text.begin() + match->position(), '\n');
        found.push_back(file.path + ":" + std::to_string(line) + ": " + match->str());
    }
    return found;
}

// Fails with every place where a file that is looked at has what must not be there.
std::string offences(const std::function<bool(const File&)>& applies, const std::string& pattern, bool only_code = true)
{
    const std::regex regex(pattern);
    std::string all;
    for (const File& file : files())
        if (applies(file))
            for (const std::string& offence : matches(file, only_code ? code(file.text) : file.text, regex))
                all += offence + "\n";
    return all;
}

} // namespace

#define VERIFY_NONE(found)                                                                                             \
    do {                                                                                                               \
        const std::string offending = (found);                                                                         \
        QVERIFY2(offending.empty(), offending.c_str());                                                                \
    } while (false)

void TestRepository::theTreeIsThere()
{
    QVERIFY(files().size() > 100);
}

void TestRepository::engineAndCudaKnowNoQt()
{
    VERIFY_NONE(offences([](const File& file) { return inFolder(file, "engine") || inFolder(file, "cuda"); },
        R"(#include\s*[<"]Q[A-Za-z/]+[>"])", false));
}

void TestRepository::cudaHeadersStayInCuda()
{
    VERIFY_NONE(offences([](const File& file) { return !inFolder(file, "cuda") && !inFolder(file, "tests"); },
        R"(#include\s*<(cuda|cublas|nv)[^>]*>)", false));
    VERIFY_NONE(offences([](const File& file) { return inFolder(file, "app") || inFolder(file, "ui"); },
        R"rx(#include\s*"cuda/[^"]*")rx", false));
}

void TestRepository::everySourceIsInACMakeList()
{
    std::string forgotten;
    for (const File& file : files()) {
        // Qt Quick Test takes every tst_*.qml of its folder.
        const bool found_by_folder = inFolder(file, "tests") && hasType(file, {".qml"});
        if (found_by_folder || !hasType(file, {".cpp", ".cu", ".qml"}))
            continue;
        if (inFolder(file, "tests") && hasType(file, {".qml"})) // Qt Quick Test finds tst_*.qml by itself
            continue;
        const fs::path path(file.path);
        bool listed = false;
        for (fs::path folder = path.parent_path(); !listed; folder = folder.parent_path()) {
            const std::string list = (folder / "CMakeLists.txt").generic_string();
            const auto found =
                std::find_if(files().begin(), files().end(), [&](const File& other) { return other.path == list; });
            if (found != files().end()) {
                // By its name, by its stem (puna_test) or by what follows tst_, fuzz_ or bench_ (in a loop of names).
                std::string stem = path.stem().string();
                for (const std::string_view prefix : {"tst_", "fuzz_", "bench_"})
                    if (stem.rfind(prefix, 0) == 0)
                        stem = "(" + std::string(prefix) + ")?" + stem.substr(prefix.size());
                listed = std::regex_search(found->text, std::regex("(^|[^A-Za-z0-9_])" + stem + "($|[^A-Za-z0-9_])"));
            }
            if (folder.empty())
                break;
        }
        if (!listed)
            forgotten += file.path + "\n";
    }
    VERIFY_NONE(forgotten);
}

// Where an item begins, and whether its own block names a format that interprets nothing by chance.
std::string textItemsWithoutFormat(const std::string& name, const std::string& qml)
{
    static const std::regex kItem(R"(\b(Text|Label|TextEdit|TextArea)\s*\{)");
    static const std::regex kFormat(
        R"(\btextFormat\s*:\s*(Text|TextEdit|TextArea|Label)\s*\.\s*(PlainText|StyledText|RichText)\b)");
    const std::string text = code(qml);
    std::string found;
    for (auto match = std::sregex_iterator(text.begin(), text.end(), kItem); match != std::sregex_iterator(); ++match) {
        std::string own; // the block without those in it
        int depth = 1;
        for (auto at = (*match)[0].second; at != text.cend() && depth > 0; ++at) {
            depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
            if (depth == 1)
                own += *at;
        }
        if (!std::regex_search(own, kFormat)) {
            const auto line = 1 + std::count(text.begin(), text.begin() + match->position(), '\n');
            found += name + ":" + std::to_string(line) + ": " + (*match)[1].str() + " without a textFormat\n";
        }
    }
    // The attached tool tip belongs to the style, whose format is automatic.
    static const std::regex kToolTip(R"(\bToolTip\s*\.\s*(text|show)\b)");
    if (std::regex_search(text, kToolTip))
        found += name + ": the attached ToolTip shows its text in an automatic format\n";
    return found;
}

void TestRepository::qmlShowsTextAsText_data()
{
    QTest::addColumn<QString>("qml");
    QTest::addColumn<bool>("accepted");
    QTest::newRow("nothing said") << "Item { Text { text: model.title } }" << false;
    QTest::newRow("automatic") << "Text { text: title; textFormat: Text.AutoText }" << false;
    QTest::newRow("only in a comment") << "Label {\n // textFormat: Text.PlainText\n text: title }" << false;
    QTest::newRow("only in an inner item") << "TextArea { Text { textFormat: Text.PlainText } }" << false;
    QTest::newRow("attached tool tip") << "Button { ToolTip.text: model.name }" << false;
    QTest::newRow("plain") << "Text { text: title; textFormat: Text.PlainText }" << true;
    QTest::newRow("plain below an inner item") << "TextEdit { Item { }\n textFormat: TextEdit.PlainText }" << true;
    QTest::newRow("not an item") << "Item { property string Text: \"Text {\" }" << true;
}

void TestRepository::qmlShowsTextAsText()
{
    QFETCH(QString, qml);
    QFETCH(bool, accepted);
    QCOMPARE(textItemsWithoutFormat("x", qml.toStdString()).empty(), accepted);
    std::string found;
    for (const File& file : files())
        if (inFolder(file, "ui") && hasType(file, {".qml"}))
            found += textItemsWithoutFormat(file.path, file.text);
    VERIFY_NONE(found);
}

void TestRepository::nothingMakesCodeOrOpensLinksBehindTheGate()
{
    const auto qml = [](const File& file) { return hasType(file, {".qml", ".js"}); };
    VERIFY_NONE(offences(qml, R"(\b(openUrlExternally|createQmlObject|XMLHttpRequest|eval)\b\s*\()"));
    VERIFY_NONE(offences(
        [](const File& file) { return (inFolder(file, "app") || inFolder(file, "ui")) && file.path != kLinkGate; },
        R"(QDesktopServices\s*::\s*openUrl)"));
}

void TestRepository::noDebugOutputIsLeft()
{
    // The tools speak to a terminal; that is what they are for.
    const auto quiet = [](const File& file) {
        return (inFolder(file, "engine") && !inFolder(file, "engine/tools")) || inFolder(file, "cuda")
            || inFolder(file, "app");
    };
    VERIFY_NONE(offences(quiet, R"(\bqDebug\s*\(|\bqInfo\s*\(|std\s*::\s*(cerr|cout|clog)\b|\bf?printf\s*\()"));
    VERIFY_NONE(offences(
        [](const File& file) {
            return hasType(file, {".qml", ".js"});
        },
        R"(\bconsole\s*\.\s*(log|debug|info|trace)\b)"));
}

void TestRepository::noPathsOfSomebodysMachine()
{
    const std::string pattern = std::string("(^|[\\s\"'(=:])/(wo") + "rk|ho" + "me|ro" + "ot)/[A-Za-z0-9_]+";
    VERIFY_NONE(
        offences([](const File& file) { return file.path != "tests/repo/tst_repository.cpp"; }, pattern, false));
    const std::string temporary = std::string("(^|[\\s\"'(=:])/t") + "mp/[A-Za-z0-9_]+";
    VERIFY_NONE(offences([](const File& file) { return !inFolder(file, "tests"); }, temporary, false));
}

QTEST_GUILESS_MAIN(TestRepository)
#include "tst_repository.moc"
