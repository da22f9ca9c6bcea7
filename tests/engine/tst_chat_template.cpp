// The template interpreter against Python's Jinja2 in Hugging Face's set-up (reference data: T1, T2), and against the
// limits of our own (T4), with small templates written here.
#include "engine/text/chat_template.h"
#include "tests/support/paths.h"

#include <QTest>

#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

using namespace puna;
using Json = nlohmann::ordered_json;

namespace {

std::string contents(const std::filesystem::path& path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

std::int64_t clockOf(const std::string& iso) // local time
{
    std::tm time {};
    time.tm_isdst = -1;
    std::sscanf(iso.c_str(), "%d-%d-%dT%d:%d:%d", &time.tm_year, &time.tm_mon, &time.tm_mday, &time.tm_hour,
        &time.tm_min, &time.tm_sec);
    time.tm_year -= 1900;
    time.tm_mon -= 1;
    return std::mktime(&time);
}

struct Outcome {
    std::string text;
    std::string error; // empty: none
    int line = 0;
    bool raised = false;
};

Outcome run(const std::string& source, const std::string& context = "{}", std::int64_t now = 0)
{
    const Result<ChatTemplate> compiled = ChatTemplate::compile(source);
    if (!compiled)
        return {{}, compiled.error().message, 0, false};
    Rendering rendering = compiled->render(context, now);
    if (rendering.failure)
        return {{}, rendering.failure->message.empty() ? "?" : rendering.failure->message, rendering.failure->line,
            rendering.failure->raised};
    return {rendering.text, {}, 0, false};
}

// Empty: as expected; else what is wrong.
std::string difference(const Outcome& got, const Json& expected)
{
    if (expected.contains("text")) {
        const auto& text = expected["text"].get_ref<const std::string&>();
        if (!got.error.empty())
            return "error: " + got.error;
        return got.text == text ? "" : "got " + Json(got.text).dump() + ", expected " + Json(text).dump();
    }
    if (got.error.empty())
        return "rendered " + Json(got.text.substr(0, 200)).dump() + ", expected the error " + expected.dump();
    const bool raise = expected["error"] == "raise";
    if (raise && (!got.raised || got.error != expected["message"].get_ref<const std::string&>()))
        return "error: " + got.error + ", expected the template's own " + expected["message"].dump();
    return raise == got.raised ? "" : "raised where another error was expected";
}

} // namespace

class TestChatTemplate : public QObject {
    Q_OBJECT

private slots:
    void rendersReferenceTemplates_data();
    void rendersReferenceTemplates();
    void micro_data();
    void micro();
    void language_data();
    void language();
    void errors_data();
    void errors();
    void limits_data();
    void limits();
    void failuresCarryLineAndExpression();
    void contextsThatAreNone_data();
    void contextsThatAreNone();
    void findsTemplates();
    void switches();
    void rendersInParallel();
};

void TestChatTemplate::rendersReferenceTemplates_data()
{
    QTest::addColumn<QString>("name");
    const auto manifest = test::shared("testdata/templates/MANIFEST.json");
    if (manifest.empty())
        QSKIP("reference templates are absent");
    for (const Json& entry : Json::parse(contents(manifest)))
        QTest::newRow(entry["file"].get<std::string>().c_str())
            << QString::fromStdString(entry["file"].get<std::string>());
}

void TestChatTemplate::rendersReferenceTemplates()
{
    QFETCH(QString, name);
    const auto folder = test::shared("testdata/templates");
    static const Json manifest = Json::parse(contents(folder / "MANIFEST.json"));
    static const Json contexts = Json::parse(contents(folder / "contexts.json"));
    const std::int64_t now = clockOf(contexts["now"]);
    const std::string file = name.toStdString();
    const Json expected = Json::parse(contents(folder / "expected" / (file.substr(0, file.rfind('.')) + ".json")));
    QCOMPARE(expected.size(), contexts["contexts"].size());
    const auto entry =
        std::find_if(manifest.begin(), manifest.end(), [&](const Json& each) { return each["file"] == file; });
    const Result<ChatTemplate> compiled = ChatTemplate::compile(contents(folder / "tmpl" / file));
    QVERIFY2(compiled.has_value(), compiled ? "" : compiled.error().message.c_str());
    for (const auto& [context_name, context] : contexts["contexts"].items()) {
        Json variables = (*entry)["special_tokens"];
        for (const auto& [key, value] : context["kwargs"].items())
            variables[key] = value;
        for (const char* key : {"messages", "tools", "documents", "add_generation_prompt"})
            variables[key] = context[key];
        const Rendering rendering = compiled->render(variables.dump(), now);
        Outcome outcome {rendering.text, {}, 0, false};
        if (rendering.failure)
            outcome = {{}, rendering.failure->message, rendering.failure->line, rendering.failure->raised};
        const std::string wrong = difference(outcome, expected[context_name]);
        if (!wrong.empty())
            QFAIL((context_name + ": " + wrong).c_str());
    }
}

void TestChatTemplate::micro_data()
{
    QTest::addColumn<QString>("source");
    QTest::addColumn<QString>("context");
    QTest::addColumn<QString>("expected");
    QTest::addColumn<int>("tier");
    const auto folder = test::shared("testdata/templates");
    if (folder.empty())
        QSKIP("reference one-liners are absent");
    const Json cases = Json::parse(contents(folder / "micro.json"));
    const Json expected = Json::parse(contents(folder / "expected" / "micro.json"));
    for (std::size_t i = 0; i < cases.size(); i++)
        QTest::newRow(cases[i]["id"].get<std::string>().c_str())
            << QString::fromStdString(cases[i]["template"].get<std::string>())
            << QString::fromStdString(cases[i].contains("vars") ? cases[i]["vars"].dump() : "{}")
            << QString::fromStdString(expected[i].dump()) << cases[i]["tier"].get<int>();
}

void TestChatTemplate::micro()
{
    QFETCH(QString, source);
    QFETCH(QString, context);
    QFETCH(QString, expected);
    QFETCH(int, tier);
    // Parts of Jinja2 that no chat template uses and this interpreter leaves out.
    static constexpr const char* kAbsent[] {"{{ 'a'.encode() }}", "{{ [1,2]|random is defined }}",
        "{{ 'x y'|wordwrap(1) }}", "{{ {'a':1}|xmlattr }}", "{{ {'a':1}|pprint }}"};
    const std::string wrong =
        difference(run(source.toStdString(), context.toStdString(), clockOf("2025-03-14T15:09:26")),
            Json::parse(expected.toStdString()));
    if (tier == 2 && std::find(std::begin(kAbsent), std::end(kAbsent), source.toStdString()) != std::end(kAbsent)) {
        QVERIFY(!wrong.empty());
        return;
    }
    if (!wrong.empty())
        QFAIL((source.toStdString() + ": " + wrong).c_str());
}

void TestChatTemplate::language_data()
{
    QTest::addColumn<QString>("source");
    QTest::addColumn<QString>("context");
    QTest::addColumn<QString>("text");
    const char* chat =
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content | trim + '<|end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";
    const char* messages = R"({"messages": [{"role": "user", "content": " Hi é "}], "add_generation_prompt": true})";
    QTest::newRow("a chat") << chat << messages << QStringLiteral("<|user|>\nHi é<|end|>\n<|assistant|>\n");
    QTest::newRow("line ends") << "a\r\nb\rc\n"
                               << "{}"
                               << "a\nb\nc";
    QTest::newRow("blocks take their line") << "a\n  {% if true %}\nb\n  {% endif %}\nc"
                                            << "{}"
                                            << "a\nb\nc";
    QTest::newRow("key order") << "{{ x }}"
                               << R"({"x": {"b": 1, "a": 2, "b": 3}})"
                               << "{'b': 3, 'a': 2}";
    QTest::newRow("json") << "{{ x|tojson }}"
                          << R"({"x": {"a<b": [1.0, null, true, "\u00e9'\n"]}})"
                          << QStringLiteral("{\"a<b\": [1.0, null, true, \"é'\\n\"]}");
    QTest::newRow("big integers are kept") << "{{ x }} {{ x|tojson }}"
                                           << R"({"x": 123456789012345678901234567890})"
                                           << "123456789012345678901234567890 123456789012345678901234567890";
    QTest::newRow("dict lookups by equal numbers") << "{{ {1: 'a', 2: 'b'}[true] }}{{ {1: 'a'}[1.0] }}"
                                                   << "{}"
                                                   << "aa";
    QTest::newRow("large dicts") << "{% set ns = namespace(d={}) %}{% for i in range(100) %}{% set ns.d = dict(ns.d, "
                                    "**{'k' ~ i: i}) %}{% endfor %}"
                                    "{{ ns.d.k73 }} {{ ns.d|length }} {{ ns.d['k9'] }} {{ 'k100' in ns.d }}"
                                 << "{}"
                                 << "73 100 9 False";
    QTest::newRow("loops that filter look ahead rightly") << "{% set ns = namespace(n=0) %}{% for x in range(6) if x % "
                                                             "2 == 0 %}{{ x }}{{ ',' if not loop.last }}{% endfor %}"
                                                          << "{}"
                                                          << "0,2,4";
    QTest::newRow("macros see later changes of the loop they stand in")
        << "{% for i in [1, 2] %}{% macro f() %}{{ i }}{{ y }}{% endmacro %}{% set y = i * 10 %}{{ f() }} {% endfor %}"
        << "{}"
        << "110 220 ";
    QTest::newRow("namespaces in themselves") << "{% set a = namespace() %}{% set a.b = [a] %}{{ a.b[0] == a }}"
                                              << "{}"
                                              << "True";
    QTest::newRow("keyword maps")
        << "{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(**{'b': 3, 'a': 1}) }}{{ f(*[7]) }}"
        << "{}"
        << "1372";
    QTest::newRow("unknown filters in a branch not taken") << "{% if false %}{{ x|from_json }}{% endif %}ok"
                                                           << "{}"
                                                           << "ok";
    QTest::newRow("backslash before a letter beyond ASCII") << QStringLiteral("{{ '\\é' }}") << "{}"
                                                            << "\\xe9";
    QTest::newRow("deep but allowed")
        << QString("(").repeated(150).prepend("{{ ").append("1").append(QString(")").repeated(150)).append(" }}")
        << "{}"
        << "1";
}

void TestChatTemplate::language()
{
    QFETCH(QString, source);
    QFETCH(QString, context);
    QFETCH(QString, text);
    const Outcome outcome = run(source.toStdString(), context.toStdString());
    QCOMPARE(QString::fromStdString(outcome.error), QString());
    QCOMPARE(QString::fromStdString(outcome.text), text);
}

void TestChatTemplate::errors_data()
{
    QTest::addColumn<QString>("source");
    QTest::addColumn<QString>("words"); // in the message
    QTest::newRow("raise") << "{{ raise_exception('No ' ~ 'system') }}"
                           << "No system";
    QTest::newRow("undefined") << "{{ a.b }}"
                               << "'a' is undefined";
    QTest::newRow("attribute of none") << "{{ none.x.y }}"
                                       << "'None' has no attribute 'x'";
    QTest::newRow("plus never converts") << "{{ 'a' + 1 }}"
                                         << "can only concatenate str";
    QTest::newRow("unclosed block") << "{% if true %}"
                                    << "endif";
    QTest::newRow("unclosed comment") << "{# x"
                                      << "comment";
    QTest::newRow("unknown tag") << "{% do x %}"
                                 << "unknown tag 'do'";
    QTest::newRow("unknown filter") << "{{ x|from_json }}"
                                    << "No filter named 'from_json'";
    QTest::newRow("include") << "{% include '/etc/passwd' %}"
                             << "cannot include";
    QTest::newRow("sandbox") << "{{ ''.__class__.__mro__ }}"
                             << "unsafe";
    QTest::newRow("mutation") << "{% set x = [] %}{{ x.append(1) }}"
                              << "unsafe";
    QTest::newRow("break outside") << "{% break %}"
                                   << "outside loop";
    QTest::newRow("surrogates") << "{{ '\\ud800' }}"
                                << "illegal";
}

void TestChatTemplate::errors()
{
    QFETCH(QString, source);
    QFETCH(QString, words);
    const QString error = QString::fromStdString(run(source.toStdString()).error);
    QVERIFY2(error.contains(words), qPrintable(error));
}

void TestChatTemplate::limits_data()
{
    QTest::addColumn<QByteArray>("source");
    QTest::addColumn<QString>("words");
    const auto nested = [](const char* open, int times, const char* inner, const char* close) {
        return QByteArray(open).repeated(times) + inner + QByteArray(close).repeated(times);
    };
    const QByteArray big = "{% set s = 'x' * 9000000 %}";
    QTest::newRow("source of 1 MiB and one byte") << QByteArray((1 << 20) + 1, 'x') << "at most 1048576";
    QTest::newRow("201 brackets") << "{{ " + nested("(", 201, "1", ")") + " }}"
                                  << "deep";
    QTest::newRow("100,000 brackets") << "{{ " + nested("[", 100'000, "", "]") + " }}"
                                      << "deep";
    QTest::newRow("100,000 nots") << "{{ " + QByteArray("not ").repeated(100'000) + "1 }}"
                                  << "deep";
    QTest::newRow("100,000 minus signs") << "{{ " + QByteArray("- ").repeated(100'000) + "1 }}"
                                         << "deep";
    QTest::newRow("100,000 sums") << "{{ 1" + QByteArray("+1").repeated(100'000) + " }}"
                                  << "deep";
    QTest::newRow("100,000 attributes") << "{{ x" + QByteArray(".a").repeated(100'000) + " }}"
                                        << "deep";
    QTest::newRow("20,000 elses") << "{{ " + QByteArray("1 if 0 else ").repeated(20'000) + "1 }}"
                                  << "deep";
    QTest::newRow("1,000 ifs") << nested("{% if 1 %}", 1000, "", "{% endif %}") << "deep";
    QTest::newRow("300,000 parts") << "{{ [" + QByteArray("1,").repeated(300'000) + "] }}"
                                   << "parts";
    QTest::newRow("endless macro") << QByteArray("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}") << "calls nested";
    QTest::newRow("endless macros in deep expressions")
        << "{% macro f() %}{{ " + nested("(1, ", 90, "f()", ")[1]") + " }}{% endmacro %}{{ f() }}"
        << "nested too deep";
    QTest::newRow("endless loop over itself")
        << QByteArray("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}") << "calls nested";
    QTest::newRow("steps") << QByteArray(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
                           << "steps";
    QTest::newRow("steps in a filter") << QByteArray(
        "{% for a in range(100000) %}{{ (range(100000)|list|sort)[:0] }}{% endfor %}")
                                       << "steps";
    QTest::newRow("steps in comparisons") << QByteArray("{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% "
                                                        "set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x|list }}")
                                          << "steps";
    QTest::newRow("steps in hashing") << QByteArray("{% set ns = namespace(x=(1,)) %}{% for i in range(100) %}{% set "
                                                    "ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}")
                                      << "steps";
    QTest::newRow("output") << big + "{{ s }}{{ s }}"
                            << "16 MiB";
    QTest::newRow("string by repeat") << QByteArray("{{ ('x' * 1000000000)|length }}") << "16 MiB";
    QTest::newRow("string by overflowing repeat")
        << QByteArray("{{ ('xyz' * 9223372036854775807)|length }}") << "16 MiB";
    QTest::newRow("string by sum") << big + "{{ (s + s)|length }}"
                                   << "16 MiB";
    QTest::newRow("string by join") << big + "{{ ([s, s]|join)|length }}"
                                    << "16 MiB";
    QTest::newRow("string by replace") << big + "{{ s|replace('x', 'xxxx')|length }}"
                                       << "16 MiB";
    QTest::newRow("string by indent") << QByteArray("{{ ('a\n' * 1000)|indent(100000)|length }}") << "16 MiB";
    QTest::newRow("string by center") << QByteArray("{{ 'a'.center(1000000000)|length }}") << "16 MiB";
    QTest::newRow("string by format") << QByteArray("{{ '%1000000000d' % 1 }}") << "too large";
    QTest::newRow("string by tojson") << QByteArray("{{ [[[1] * 1000] * 1000]|tojson(indent=100000) }}") << "16 MiB";
    QTest::newRow("printing shared values") << QByteArray(
        "{% set ns = namespace(x=['xxxxxxxx']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
        "ns.x }}") << "16 MiB";
    QTest::newRow("list by repeat") << QByteArray("{{ ([1] * 1000001)|length }}") << "1000000 elements";
    QTest::newRow("list by sum") << QByteArray("{% set l = [1] * 600000 %}{{ (l + l)|length }}") << "1000000 elements";
    QTest::newRow("list by split") << QByteArray("{{ ('a ' * 2000000).split()|length }}") << "";
    QTest::newRow("live values") << QByteArray(
        "{% set ns = namespace(x=[]) %}{% for i in range(100) %}{% set ns.x = ns.x + ['x' * 1000000] %}{% endfor %}")
                                 << "MiB";
    QTest::newRow("nested values") << QByteArray(
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}")
                                   << "deep";
    QTest::newRow("nested iterators") << QByteArray(
        "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}")
                                      << "deep";
    QTest::newRow("namespaces in a ring")
        << QByteArray("{% set a = namespace() %}{% set a.a = a %}{{ a }}") << "contains itself";
    QTest::newRow("range") << QByteArray("{{ range(100001)|length }}") << "100000";
    QTest::newRow("range of overflowing size")
        << QByteArray("{{ range(-9223372036854775807, 9223372036854775807)|length }}") << "100000";
    QTest::newRow("sum beyond 64 bits") << QByteArray("{{ 9223372036854775807 + 1 }}") << "64 bits";
    QTest::newRow("difference beyond 64 bits") << QByteArray("{{ -9223372036854775807 - 2 }}") << "64 bits";
    QTest::newRow("product beyond 64 bits") << QByteArray("{{ 4611686018427387904 * 2 }}") << "64 bits";
    QTest::newRow("power beyond 64 bits") << QByteArray("{{ 10 ** 19 }}") << "64 bits";
    QTest::newRow("negated beyond 64 bits") << QByteArray("{{ (-9223372036854775807 - 1) // -1 }}") << "64 bits";
    QTest::newRow("division by zero") << QByteArray("{{ 1 // 0 }}") << "zero";
    QTest::newRow("modulo by zero") << QByteArray("{{ 1 % 0 }}") << "zero";
    QTest::newRow("real division by zero") << QByteArray("{{ 1.0 / 0 }}") << "zero";
}

void TestChatTemplate::limits()
{
    QFETCH(QByteArray, source);
    QFETCH(QString, words);
    const std::clock_t start = std::clock();
    const Outcome outcome = run(source.toStdString());
    const long took = 1000L * (std::clock() - start) / CLOCKS_PER_SEC;
    QVERIFY2(!outcome.error.empty(), "nothing was refused");
    QVERIFY2(QString::fromStdString(outcome.error).contains(words), outcome.error.c_str());
    QVERIFY2(outcome.error.size() < 1000, "the message is too long to be shown");
    // The goal is 250 ms; sanitizers and slower machines take longer.
    QVERIFY2(took < 3000, qPrintable(QString("took %1 ms").arg(took)));
}

void TestChatTemplate::failuresCarryLineAndExpression()
{
    const Outcome undefined = run("a\n\n{{ 'x' +\n  nothing.here }}");
    QCOMPARE(undefined.line, 4);
    QVERIFY2(undefined.error.find("nothing.here") != std::string::npos, undefined.error.c_str());
    const Outcome raised = run("{% if true %}\n{{ raise_exception('No.') }}{% endif %}");
    QCOMPARE(raised.error, std::string("No."));
    QCOMPARE(raised.line, 2);
    QVERIFY(raised.raised);
    const Result<ChatTemplate> broken = ChatTemplate::compile("\n\n{{ 1 + }}");
    QVERIFY(!broken);
    QVERIFY2(broken.error().message.find("line 3") != std::string::npos, broken.error().message.c_str());
    QVERIFY(!ChatTemplate::compile("\xff"));
}

void TestChatTemplate::contextsThatAreNone_data()
{
    QTest::addColumn<QByteArray>("context");
    QTest::newRow("empty") << QByteArray();
    QTest::newRow("a list") << QByteArray("[]");
    QTest::newRow("cut off") << QByteArray("{\"a\": ");
    QTest::newRow("not UTF-8") << QByteArray("{\"a\": \"\xff\"}");
    QTest::newRow("nested 1,000 deep") << "{\"a\": " + QByteArray(1000, '[') + QByteArray(1000, ']') + "}";
    QTest::newRow("nested 1,000,000 deep") << "{\"a\": " + QByteArray(1000000, '[') + "}";
}

void TestChatTemplate::contextsThatAreNone()
{
    QFETCH(QByteArray, context);
    const Outcome outcome = run("x", context.toStdString());
    QVERIFY(!outcome.error.empty());
    QVERIFY(!outcome.raised);
}

void TestChatTemplate::findsTemplates()
{
    namespace fs = std::filesystem;
    const fs::path folder =
        fs::temp_directory_path() / ("puna_templates_" + std::to_string(QCoreApplication::applicationPid()));
    const auto write = [&](const char* name, const std::string& text) {
        std::ofstream(folder / name, std::ios::binary) << text;
    };
    const auto found = [&] {
        const auto result = findChatTemplate(folder);
        return !result ? "error: " + result.error().message : result->value_or("none");
    };
    fs::create_directories(folder);
    QCOMPARE(found(), std::string("none"));
    write("chat_template.json", R"({"chat_template": "processor"})");
    QCOMPARE(found(), std::string("processor"));
    write("tokenizer_config.json", R"({"chat_template": null})");
    QCOMPARE(found(), std::string("processor"));
    write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
    QCOMPARE(found(), std::string("d"));
    write("tokenizer_config.json", R"({"chat_template": "config"})");
    QCOMPARE(found(), std::string("config"));
    write("tokenizer_config.json", "{\"chat_template\": ");
    QVERIFY(found().starts_with("error: tokenizer_config.json"));
    write("tokenizer_config.json", R"({"chat_template": 7})");
    QVERIFY(found().starts_with("error: tokenizer_config.json"));
    write("tokenizer_config.json",
        R"({"chat_template": [{"name": "a", "template": ""}, {"name": "b", "template": ""}]})");
    QVERIFY(found().starts_with("error: tokenizer_config.json"));
    write("chat_template.jinja", "file");
    QCOMPARE(found(), std::string("file"));
    fs::remove(folder / "chat_template.jinja");
    fs::create_directories(folder / "chat_template.jinja");
    QVERIFY(found().starts_with("error: chat_template.jinja"));
    fs::remove_all(folder);
}

void TestChatTemplate::switches()
{
    const auto compiled = ChatTemplate::compile("{% if not date is defined %}{% set date = strftime_now('%Y') %}{% "
                                                "endif %}{% macro f(a) %}{{ a }}{% endmacro %}"
                                                "{% for m in messages %}{{ f(m) }}{{ loop.index }}{% endfor %}{% if "
                                                "enable_thinking %}{{ bos_token }}{% endif %}");
    QVERIFY(compiled.has_value());
    QCOMPARE(compiled->switches(), (std::vector<std::string> {"date", "enable_thinking"}));
}

void TestChatTemplate::rendersInParallel()
{
    const auto compiled = ChatTemplate::compile("{% set ns = namespace(t='') %}{% for i in range(50) %}{% set ns.t = "
                                                "ns.t ~ x ~ 'c' %}{% endfor %}{{ ns.t|length }}");
    QVERIFY(compiled.has_value());
    std::vector<std::thread> threads;
    std::array<std::string, 4> texts;
    for (std::size_t k = 0; k < texts.size(); k++)
        threads.emplace_back([&, k] {
            for (int i = 0; i < 50; i++)
                texts[k] = compiled->render("{\"x\": \"" + std::string(k, 'x') + "\"}").text;
        });
    for (std::thread& thread : threads)
        thread.join();
    for (std::size_t k = 0; k < texts.size(); k++)
        QCOMPARE(texts[k], std::to_string(50 * (k + 1)));
}

QTEST_GUILESS_MAIN(TestChatTemplate)
#include "tst_chat_template.moc"
