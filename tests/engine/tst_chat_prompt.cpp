// From messages to a prompt: variables, folding for strict templates, and what the caller is told.
#include "engine/text/chat_prompt.h"
#include "engine/text/chat_template.h"

#include <QTest>

#include <vector>

using namespace puna;

namespace {

// Refuses system messages and roles that do not alternate, as several models' templates do.
constexpr const char* kStrict =
    "{{ bos_token }}{% for m in messages %}\n"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\n"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[answer]{% endif %}";
constexpr const char* kAlternating =
    "{% for m in messages if m.role != 'system' %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";

using Messages = std::vector<ChatMessage>;

Result<RenderedPrompt> render(const char* source, const Messages& messages, const char* variables = "{}",
    const char* bos = "<s>", const char* eos = "</s>")
{
    Result<ChatTemplate> compiled = ChatTemplate::compile(source);
    if (!compiled)
        return compiled.error();
    return renderChat(*compiled, messages, variables, bos, eos);
}

std::string text(const Result<RenderedPrompt>& prompt)
{
    return prompt ? prompt->text : "error: " + prompt.error().message;
}

} // namespace

class TestChatPrompt : public QObject {
    Q_OBJECT

private slots:
    void rendersMessagesAsTheyAre();
    void variablesReachTheTemplate();
    void tokensThatAreNotSetStayUndefined();
    void foldsARefusedSystemMessage();
    void joinsRepeatedRolesButKeepsTheSystemMessage();
    void reportsTheFirstRefusal();
    void otherErrorsAreNotFolded();
    void refusesVariablesThatAreNoObject();
    void refusesTextThatIsNotUtf8();
    void noticesAnOpenedThinkingBlock();
};

void TestChatPrompt::rendersMessagesAsTheyAre()
{
    const auto prompt = render(kStrict, {{"user", " \"Hi\"\n{{ x }} é "}, {"assistant", "Hello"}, {"user", "Bye"}});
    QCOMPARE(text(prompt), std::string("<s>[user] \"Hi\"\n{{ x }} é [assistant]Hello[user]Bye[answer]"));
    QVERIFY(prompt->note.empty());
    QVERIFY(!prompt->starts_thinking);
}

void TestChatPrompt::variablesReachTheTemplate()
{
    const char* source = "{{ enable_thinking }}{{ tools is none }}{{ documents }}{{ add_generation_prompt }}{{ "
                         "messages|length }}{{ big }}";
    QCOMPARE(text(render(source, {{"user", ""}})), std::string("TrueNoneTrue1"));
    QCOMPARE(
        text(render(source, {{"user", ""}},
            R"( {"enable_thinking": false, "tools": [1], "add_generation_prompt": false, "messages": [], "big": 123456789012345678901} )")),
        std::string("FalseFalseNoneFalse1123456789012345678901"));
    QCOMPARE(text(render(source, {{"user", ""}}, "")), std::string("TrueNoneTrue1"));
}

void TestChatPrompt::tokensThatAreNotSetStayUndefined()
{
    const char* source = "{{ bos_token is defined }}{{ eos_token is defined }}";
    QCOMPARE(text(render(source, {}, "{}", "", "<\"e\">")), std::string("FalseTrue"));
}

void TestChatPrompt::foldsARefusedSystemMessage()
{
    const auto prompt = render(kStrict, {{"system", "Be brief."}, {"user", "Hi"}});
    QCOMPARE(text(prompt), std::string("<s>[user]Be brief.\n\nHi[answer]"));
    QVERIFY2(prompt->note.find("system message") != std::string::npos, prompt->note.c_str());

    const auto both = render(kStrict, {{"system", "Be brief."}, {"user", "Hi"}, {"user", "there"}});
    QCOMPARE(text(both), std::string("<s>[user]Be brief.\n\nHi\n\nthere[answer]"));
    QVERIFY2(both->note.find("joined") != std::string::npos, both->note.c_str());
}

void TestChatPrompt::joinsRepeatedRolesButKeepsTheSystemMessage()
{
    const auto prompt = render(kAlternating, {{"system", "S"}, {"user", "a"}, {"user", "b"}});
    QCOMPARE(text(prompt), std::string("[system]S[user]a\n\nb"));
    QVERIFY(!prompt->note.empty());
}

void TestChatPrompt::reportsTheFirstRefusal()
{
    const auto prompt = render(kStrict, {{"assistant", "I begin"}});
    QCOMPARE(text(prompt), std::string("error: This model's template refused: Roles must alternate (line 3)"));
    QCOMPARE(static_cast<int>(prompt.error().code), static_cast<int>(ErrorCode::argument));
}

void TestChatPrompt::otherErrorsAreNotFolded()
{
    const auto prompt = render(
        "{% if messages[0].role == 'system' %}{{ nothing.here }}{% endif %}ok", {{"system", "S"}, {"user", "a"}});
    QCOMPARE(text(prompt),
        std::string("error: This model's template refused: 'nothing' is undefined, in: nothing.here (line 1)"));
}

void TestChatPrompt::refusesVariablesThatAreNoObject()
{
    for (const char* variables : {"[]", "7", "{", "{} {}", "{\"a\": 1}, \"b\": 2", "\xff"})
        QVERIFY2(text(render("x", {}, variables)).starts_with("error: The template's variables are not"), variables);
}

void TestChatPrompt::refusesTextThatIsNotUtf8()
{
    QVERIFY(!render("x", {{"user", "\xc3"}}));
    QVERIFY(!render("x", {}, "{}", "\xff"));
}

void TestChatPrompt::noticesAnOpenedThinkingBlock()
{
    QVERIFY(render("[a]<think>\n", {})->starts_thinking);
    QVERIFY(!render("[a]<think>\n\n</think>\n\n", {})->starts_thinking);
    QVERIFY(!render("{{ messages[0].content }}[a]", {{"user", "what is <think>"}})->starts_thinking);
}

QTEST_GUILESS_MAIN(TestChatPrompt)
#include "tst_chat_prompt.moc"
