// tokenizer.json and tokenizer_config.json to TokenizerParts.
//
// The two long lists, vocabulary and merges, go from the parser straight into arenas; the rest becomes a small tree of
// JSON values. Nothing is guessed: a component that is not known is refused by name.
// Source: `tokenizer-and-templates.md` 1.2, 1.3, 1.8.
#include "engine/base/mapped_file.h"
#include "engine/text/tokenizer_impl.h"
#include "engine/text/unicode.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>

namespace puna {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kJsonDepthMax = 64;
constexpr std::uintmax_t kFileBytesMax = 512u << 20;
constexpr std::size_t kStepsMax = 64; // of one pipeline

std::string inQuotes(std::string_view text)
{
    return "'" + unicode::repair(text.substr(0, 80)) + (text.size() > 80 ? "...'" : "'");
}

Error bad(const std::string& what)
{
    return {ErrorCode::format, "tokenizer.json: " + what + "; the file is damaged, fetch it again."};
}

Error notSupported(std::string_view place, const std::string& what, std::string_view known)
{
    return {ErrorCode::unsupported,
        "tokenizer.json: " + std::string(place) + " " + what + " is not supported (known: " + std::string(known)
            + "); this model cannot be used yet."};
}

// Two texts a merge, in one arena.
struct MergeTexts {
    std::string arena;
    std::vector<std::uint32_t> ends;

    bool add(std::string_view text)
    {
        if (arena.size() + text.size() > std::numeric_limits<std::uint32_t>::max())
            return false;
        arena += text;
        ends.push_back(static_cast<std::uint32_t>(arena.size()));
        return true;
    }
    std::string_view text(std::size_t i) const
    {
        const std::uint32_t begin = i ? ends[i - 1] : 0;
        return std::string_view(arena).substr(begin, ends[i] - begin);
    }
};

class Handler : public nlohmann::json_sax<Json> {
public:
    Json root; // without vocabulary and merges
    Vocabulary vocabulary;
    MergeTexts merges;
    bool has_vocabulary = false, has_merges = false;
    std::optional<Error> error;

    bool null() override { return value(Json()); }
    bool boolean(bool v) override { return value(Json(v)); }
    bool number_integer(number_integer_t v) override
    {
        return m_place == Place::vocabulary ? tokenId(v) : value(Json(v));
    }
    bool number_unsigned(number_unsigned_t v) override
    {
        if (m_place != Place::vocabulary)
            return value(Json(v));
        return tokenId(v > static_cast<number_unsigned_t>(kTokenIdMax) ? -1 : static_cast<number_integer_t>(v));
    }
    bool number_float(number_float_t v, const string_t&) override { return value(Json(v)); }
    bool binary(binary_t&) override { return false; }
    bool string(string_t& v) override
    {
        switch (m_place) {
        case Place::merges:
            if (m_depth == 3) {
                const std::size_t space = v.find(' ');
                if (space == std::string::npos || v.find(' ', space + 1) != std::string::npos)
                    return fail("merge " + std::to_string(merges.ends.size() / 2) + " is " + inQuotes(v)
                        + ", expected two parts with one space between");
                return side(std::string_view(v).substr(0, space)) && side(std::string_view(v).substr(space + 1));
            }
            ++m_sides;
            return side(v);
        case Place::vocabulary:
            return fail("the token " + inQuotes(m_token) + " has the id " + inQuotes(v) + ", expected a number");
        default:
            return value(Json(v));
        }
    }

    bool key(string_t& k) override
    {
        if (m_place == Place::vocabulary) {
            m_token = k;
            return true;
        }
        if (m_place == Place::skipped)
            return true;
        if (m_depth == 1)
            m_top_key = k;
        else if (m_depth == 2)
            m_second_key = k;
        if (m_open.back()->contains(k))
            return fail("the key " + inQuotes(k) + " stands twice in one object");
        m_key = k;
        return true;
    }

    bool start_object(std::size_t) override
    {
        ++m_depth;
        if (m_depth == 3 && m_place == Place::tree && m_top_key == "model" && m_second_key == "vocab") {
            m_place = Place::vocabulary;
            return !std::exchange(has_vocabulary, true) || fail("the model has two vocabularies");
        }
        if (m_place == Place::vocabulary || m_place == Place::merges)
            return fail("an object stands among tokens or merges");
        return open(Json::object());
    }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override
    {
        ++m_depth;
        if (m_depth == 3 && m_place == Place::tree && m_top_key == "model" && m_second_key == "merges") {
            m_place = Place::merges;
            return !std::exchange(has_merges, true) || fail("the model has two lists of merges");
        }
        if (m_depth == 3 && m_place == Place::tree && m_top_key == "model" && m_second_key == "vocab") {
            m_place = Place::skipped; // of a Unigram model, which is refused by name later
            return true;
        }
        if (m_place == Place::merges && m_depth == 4) {
            m_sides = 0;
            return true;
        }
        if (m_place == Place::vocabulary || m_place == Place::merges)
            return fail("an array stands where a token id or a merge is expected");
        return open(Json::array());
    }
    bool end_array() override
    {
        if (m_place == Place::merges && m_depth == 4) {
            --m_depth;
            return m_sides == 2
                || fail("merge " + std::to_string((merges.ends.size() - static_cast<std::size_t>(m_sides)) / 2)
                    + " has " + std::to_string(m_sides) + " parts, expected 2");
        }
        return close();
    }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override
    {
        return fail("it is not well-formed JSON at byte " + std::to_string(position));
    }

private:
    enum class Place : unsigned char { tree, vocabulary, merges, skipped };

    bool fail(const std::string& what)
    {
        if (!error)
            error = bad(what);
        return false;
    }

    bool side(std::string_view text) { return merges.add(text) || fail("the merges are larger than 4 GB"); }

    bool tokenId(number_integer_t id)
    {
        if (id < 0 || id > kTokenIdMax)
            return fail("the token " + inQuotes(m_token) + " has an id outside 0 to " + std::to_string(kTokenIdMax));
        const auto token = static_cast<TokenId>(id);
        if (vocabulary.insert(m_token, token))
            return true;
        return fail(vocabulary.contains(token) ? "the id " + std::to_string(id) + " is given to "
                    + inQuotes(vocabulary.text(token)) + " and to " + inQuotes(m_token)
                                               : "the token " + inQuotes(m_token) + " stands twice in the vocabulary");
    }

    bool value(Json&& v)
    {
        if (m_place == Place::skipped)
            return true;
        if (m_place == Place::vocabulary)
            return fail("the token " + inQuotes(m_token) + " has no whole number for an id");
        if (m_place == Place::merges)
            return fail("merge " + std::to_string(merges.ends.size() / 2) + " is not text");
        put(std::move(v));
        return true;
    }
    Json* put(Json&& v)
    {
        if (m_open.empty()) {
            root = std::move(v);
            return &root;
        }
        Json& parent = *m_open.back();
        if (parent.is_array()) {
            parent.push_back(std::move(v));
            return &parent.back();
        }
        Json& child = parent[m_key];
        child = std::move(v);
        return &child;
    }
    bool open(Json&& v)
    {
        if (m_depth > kJsonDepthMax)
            return fail("it is nested deeper than " + std::to_string(kJsonDepthMax));
        if (m_place != Place::skipped)
            m_open.push_back(put(std::move(v)));
        return true;
    }
    bool close()
    {
        --m_depth;
        if (m_place != Place::tree) {
            if (m_depth == 2)
                m_place = Place::tree;
            return true;
        }
        m_open.pop_back();
        return true;
    }

    Place m_place = Place::tree;
    std::size_t m_depth = 0;
    std::string m_top_key, m_second_key, m_key, m_token;
    std::vector<Json*> m_open;
    int m_sides = 0;
};

// --- fields ---

const Json* field(const Json& object, const char* key) // nullptr: absent or null
{
    if (!object.is_object())
        return nullptr;
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<std::string> textField(const Json& object, const char* key, std::string_view place)
{
    const Json* found = field(object, key);
    if (!found || !found->is_string())
        return bad(std::string(place) + " has no text '" + key + "'");
    return found->get<std::string>();
}

Result<bool> flagField(const Json& object, const char* key, bool otherwise, std::string_view place)
{
    const Json* found = field(object, key);
    if (!found)
        return otherwise;
    if (!found->is_boolean())
        return bad(std::string(place) + " has a '" + key + "' that is neither true nor false");
    return found->get<bool>();
}

Result<int> countField(const Json& object, const char* key, std::string_view place)
{
    const Json* found = field(object, key);
    if (!found)
        return 0;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > 1000)
        return bad(std::string(place) + " has a '" + key + "' that is no number from 0 to 1000");
    return static_cast<int>(found->get<std::uint64_t>());
}

// The component, or every component of a Sequence, in order.
Result<std::vector<const Json*>> components(const Json* component, const char* list, std::string_view place)
{
    std::vector<const Json*> out;
    std::vector<const Json*> open;
    if (component)
        open.push_back(component);
    while (!open.empty()) {
        const Json* next = open.back();
        open.pop_back();
        if (!next->is_object())
            return bad(std::string(place) + " is not an object");
        const std::string type = TRY(textField(*next, "type", place));
        if (type != "Sequence") {
            out.push_back(next);
            if (out.size() > kStepsMax)
                return bad(std::string(place) + " has more than " + std::to_string(kStepsMax) + " steps");
            continue;
        }
        const Json* members = field(*next, list);
        if (!members || !members->is_array())
            return bad(std::string(place) + " is a Sequence without '" + list + "'");
        for (auto it = members->rbegin(); it != members->rend(); ++it)
            open.push_back(&*it);
    }
    return out;
}

struct Pattern {
    std::string text;
    std::optional<Regex> regex;
};

Result<Pattern> patternField(const Json& object, std::string_view place)
{
    const Json* found = field(object, "pattern");
    if (!found || !found->is_object() || found->size() != 1)
        return bad(std::string(place) + " has no pattern");
    const auto entry = found->begin();
    const std::string& kind = entry.key();
    const Json& value = entry.value();
    if (!value.is_string())
        return bad(std::string(place) + " has a pattern that is not text");
    Pattern out;
    const std::string text = value.get<std::string>();
    if (kind == "String") {
        if (text.empty())
            return bad(std::string(place) + " has an empty pattern");
        out.text = text;
    } else if (kind == "Regex")
        out.regex = TRY(Regex::compile(text, "tokenizer.json: " + std::string(place)));
    else
        return notSupported(place, "pattern " + inQuotes(kind), "String, Regex");
    return out;
}

Result<Pretokenizer::Behavior> behaviorField(const Json& object, const char* otherwise, std::string_view place)
{
    std::string name = otherwise;
    if (field(object, "behavior") || !*otherwise)
        name = TRY(textField(object, "behavior", place));
    using enum Pretokenizer::Behavior;
    constexpr std::pair<std::string_view, Pretokenizer::Behavior> kNames[] = {{"Removed", removed},
        {"Isolated", isolated}, {"MergedWithPrevious", merged_with_previous}, {"MergedWithNext", merged_with_next},
        {"Contiguous", contiguous}};
    for (const auto& [known, behavior] : kNames)
        if (name == known)
            return behavior;
    return notSupported(
        place, "behavior " + inQuotes(name), "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

struct Metaspace {
    std::string mark;
    Pretokenizer::PrependScheme scheme;
    bool split;
};

Result<Metaspace> metaspaceFields(const Json& object, std::string_view place)
{
    using enum Pretokenizer::PrependScheme;
    Metaspace out {TRY(textField(object, "replacement", place)), always, TRY(flagField(object, "split", true, place))};
    if (out.mark.empty() || unicode::decode(out.mark.data()).length != out.mark.size())
        return bad(std::string(place) + " has a replacement that is not one character");
    const bool prefix = TRY(flagField(object, "add_prefix_space", true, place));
    std::string name = prefix ? "always" : "never";
    if (field(object, "prepend_scheme"))
        name = TRY(textField(object, "prepend_scheme", place));
    if (name == "always")
        out.scheme = always;
    else if (name == "first")
        out.scheme = first;
    else if (name == "never")
        out.scheme = never;
    else
        return notSupported(place, "prepend_scheme " + inQuotes(name), "always, first, never");
    if (!prefix && out.scheme != never)
        return bad(std::string(place) + " has add_prefix_space false and the prepend_scheme " + name);
    return out;
}

// --- the parts ---

Result<Normalizer> readNormalizer(const Json* component)
{
    constexpr std::string_view kPlace = "normalizer";
    using Step = Normalizer::Step;
    Normalizer out;
    for (const Json* c : TRY(components(component, "normalizers", kPlace))) {
        const std::string type = TRY(textField(*c, "type", kPlace));
        if (type == "NFC")
            out.steps.push_back({Step::nfc});
        else if (type == "NFD")
            out.steps.push_back({Step::nfd});
        else if (type == "NFKC")
            out.steps.push_back({Step::nfkc});
        else if (type == "NFKD")
            out.steps.push_back({Step::nfkd});
        else if (type == "Lowercase")
            out.steps.push_back({Step::lowercase});
        else if (type == "Prepend")
            out.steps.push_back({Step::prepend, TRY(textField(*c, "prepend", kPlace))});
        else if (type == "Replace") {
            Pattern pattern = TRY(patternField(*c, kPlace));
            const auto kind = pattern.regex ? Step::replace_regex : Step::replace_text;
            out.steps.push_back(
                {kind, std::move(pattern.text), TRY(textField(*c, "content", kPlace)), std::move(pattern.regex)});
        } else if (type == "Strip") {
            Step step {Step::strip};
            step.left = TRY(flagField(*c, "strip_left", true, kPlace));
            step.right = TRY(flagField(*c, "strip_right", true, kPlace));
            out.steps.push_back(std::move(step));
        } else
            return notSupported(
                kPlace, inQuotes(type), "Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip");
    }
    return out;
}

Result<Pretokenizer> readPretokenizer(const Json* component)
{
    constexpr std::string_view kPlace = "pre_tokenizer";
    using Step = Pretokenizer::Step;
    std::vector<Step> steps;
    bool byte_level = false;
    for (const Json* c : TRY(components(component, "pretokenizers", kPlace))) {
        const std::string type = TRY(textField(*c, "type", kPlace));
        Step step {};
        if (type == "Split") {
            step.kind = Step::split;
            step.behavior = TRY(behaviorField(*c, "", kPlace));
            step.invert = TRY(flagField(*c, "invert", false, kPlace));
            Pattern pattern = TRY(patternField(*c, kPlace));
            step.text = std::move(pattern.text);
            step.regex = std::move(pattern.regex);
        } else if (type == "ByteLevel") {
            if (byte_level)
                return notSupported(kPlace, "with two ByteLevel steps", "one");
            byte_level = true;
            step.kind = Step::byte_level;
            step.add_prefix_space = TRY(flagField(*c, "add_prefix_space", true, kPlace));
            if (TRY(flagField(*c, "use_regex", true, kPlace)))
                step.regex = TRY(Regex::compile(kGpt2Pattern, "tokenizer.json: pre_tokenizer"));
        } else if (type == "Digits") {
            step.kind = Step::digits;
            step.behavior = TRY(flagField(*c, "individual_digits", false, kPlace)) ? Pretokenizer::Behavior::isolated
                                                                                   : Pretokenizer::Behavior::contiguous;
        } else if (type == "Punctuation") {
            step.kind = Step::punctuation;
            step.behavior = TRY(behaviorField(*c, "Isolated", kPlace));
        } else if (type == "Metaspace") {
            const Metaspace metaspace = TRY(metaspaceFields(*c, kPlace));
            step.kind = Step::metaspace;
            step.text = metaspace.mark;
            step.scheme = metaspace.scheme;
            step.split_at_mark = metaspace.split;
        } else
            return notSupported(kPlace, inQuotes(type), "Sequence, Split, ByteLevel, Digits, Metaspace, Punctuation");
        steps.push_back(std::move(step));
    }
    return Pretokenizer(std::move(steps));
}

Result<std::vector<DecoderStep>> readDecoder(const Json* component)
{
    constexpr std::string_view kPlace = "decoder";
    std::vector<DecoderStep> steps;
    if (!component) {
        steps.push_back({DecoderStep::spaces});
        return steps;
    }
    for (const Json* c : TRY(components(component, "decoders", kPlace))) {
        const std::string type = TRY(textField(*c, "type", kPlace));
        if (type == "ByteLevel")
            steps.push_back({DecoderStep::byte_level});
        else if (type == "ByteFallback")
            steps.push_back({DecoderStep::byte_fallback});
        else if (type == "Fuse")
            steps.push_back({DecoderStep::fuse});
        else if (type == "Replace") {
            Pattern pattern = TRY(patternField(*c, kPlace));
            const auto kind = pattern.regex ? DecoderStep::replace_regex : DecoderStep::replace_text;
            steps.push_back(
                {kind, std::move(pattern.text), TRY(textField(*c, "content", kPlace)), std::move(pattern.regex)});
        } else if (type == "Strip") {
            DecoderStep step {DecoderStep::strip, TRY(textField(*c, "content", kPlace))};
            if (step.text.empty() || unicode::decode(step.text.data()).length != step.text.size())
                return bad("decoder Strip has a content that is not one character");
            step.start = TRY(countField(*c, "start", kPlace));
            step.stop = TRY(countField(*c, "stop", kPlace));
            steps.push_back(std::move(step));
        } else if (type == "Metaspace") {
            const Metaspace metaspace = TRY(metaspaceFields(*c, kPlace));
            DecoderStep step {DecoderStep::metaspace, metaspace.mark};
            step.drop_first_marks = metaspace.scheme != Pretokenizer::PrependScheme::never;
            steps.push_back(std::move(step));
        } else
            return notSupported(
                kPlace, inQuotes(type), "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace");
    }
    return steps;
}

TokenId idOf(const TokenizerParts& parts, std::string_view content)
{
    for (const AddedToken& token : parts.added)
        if (token.content == content)
            return token.id;
    return parts.vocabulary.find(content);
}

bool idKnown(const TokenizerParts& parts, TokenId id)
{
    return parts.vocabulary.contains(id)
        || std::any_of(parts.added.begin(), parts.added.end(), [id](const AddedToken& t) { return t.id == id; });
}

Result<void> readPostProcessor(const Json* component, TokenizerParts& parts)
{
    constexpr std::string_view kPlace = "post_processor";
    for (const Json* c : TRY(components(component, "processors", kPlace))) {
        const std::string type = TRY(textField(*c, "type", kPlace));
        if (type == "ByteLevel")
            continue; // offsets only
        if (type != "TemplateProcessing")
            return notSupported(kPlace, inQuotes(type), "Sequence, TemplateProcessing, ByteLevel");
        const Json* single = field(*c, "single");
        const Json* special = field(*c, "special_tokens");
        if (!single || !single->is_array())
            return bad("post_processor has no template 'single'");
        std::vector<TokenId> prefix, suffix;
        int sequences = 0;
        for (const Json& item : *single) {
            if (field(item, "Sequence")) {
                ++sequences;
                continue;
            }
            const Json* token = field(item, "SpecialToken");
            if (!token)
                return bad("post_processor has a template item that is neither Sequence nor SpecialToken");
            const std::string name = TRY(textField(*token, "id", kPlace));
            const Json* entry = special ? field(*special, name.c_str()) : nullptr;
            const Json* ids = entry ? field(*entry, "ids") : nullptr;
            if (!ids || !ids->is_array())
                return bad("post_processor names the token " + inQuotes(name) + " without giving its ids");
            for (const Json& id : *ids) {
                if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(kTokenIdMax)
                    || !idKnown(parts, id.get<TokenId>()))
                    return bad("post_processor gives " + inQuotes(name) + " an id that no token has");
                (sequences ? suffix : prefix).push_back(id.get<TokenId>());
            }
        }
        if (sequences != 1)
            return notSupported(kPlace, "template with " + std::to_string(sequences) + " sequences", "one");
        parts.prefix.insert(parts.prefix.begin(), prefix.begin(), prefix.end());
        parts.suffix.insert(parts.suffix.end(), suffix.begin(), suffix.end());
    }
    return {};
}

Result<AddedToken> readAddedToken(const Json& entry, std::string_view place)
{
    AddedToken token;
    token.content = TRY(textField(entry, "content", place));
    if (token.content.size() > kAddedTokenBytesMax)
        return bad(std::string(place) + " has an entry of " + std::to_string(token.content.size())
            + " bytes, expected at most " + std::to_string(kAddedTokenBytesMax));
    token.single_word = TRY(flagField(entry, "single_word", false, place));
    token.lstrip = TRY(flagField(entry, "lstrip", false, place));
    token.rstrip = TRY(flagField(entry, "rstrip", false, place));
    token.special = TRY(flagField(entry, "special", false, place));
    token.normalized = TRY(flagField(entry, "normalized", !token.special, place));
    return token;
}

// Looks up by content and by id while the list grows.
class AddedTokens {
public:
    AddedTokens(TokenizerParts& parts)
        : m_parts(parts)
        , m_next(parts.vocabulary.idEnd())
    {
    }

    // wanted: the id that the file gives; the vocabulary's own goes first.
    Result<void> add(AddedToken token, std::optional<TokenId> wanted)
    {
        if (const auto known = m_by_content.find(token.content); known != m_by_content.end()) {
            AddedToken& old = m_parts.added[known->second];
            token.id = old.id;
            old = std::move(token); // later flags count
            return {};
        }
        token.id = m_parts.vocabulary.find(token.content);
        if (token.id == kNoToken)
            token.id = wanted ? *wanted : m_next;
        if (token.id > kTokenIdMax)
            return bad("there is no id left for the added token " + inQuotes(token.content));
        const std::string_view other = m_parts.vocabulary.text(token.id);
        if ((m_parts.vocabulary.contains(token.id) && other != token.content) || !m_ids.insert(token.id).second)
            return bad("the id " + std::to_string(token.id) + " is given to " + inQuotes(token.content)
                + " and to another token");
        m_next = std::max(m_next, token.id + 1);
        m_by_content.emplace(token.content, m_parts.added.size());
        m_parts.added.push_back(std::move(token));
        return {};
    }

    AddedToken* find(const std::string& content)
    {
        const auto known = m_by_content.find(content);
        return known == m_by_content.end() ? nullptr : &m_parts.added[known->second];
    }
    bool taken(TokenId id) const { return m_parts.vocabulary.contains(id) || m_ids.contains(id); }

private:
    TokenizerParts& m_parts;
    std::map<std::string, std::size_t, std::less<>> m_by_content;
    std::set<TokenId> m_ids;
    TokenId m_next;
};

Result<void> readModel(const Handler& file, TokenizerParts& parts, std::string& unk)
{
    constexpr std::string_view kPlace = "model";
    const Json* model = field(file.root, "model");
    if (!model || !model->is_object())
        return bad("it has no model");
    if (field(*model, "type")) {
        const std::string type = TRY(textField(*model, "type", kPlace));
        if (type != "BPE")
            return notSupported(kPlace, inQuotes(type), "BPE");
    } else if (!file.has_merges)
        return notSupported(kPlace, "without a type and without merges", "BPE");
    if (!file.has_vocabulary || parts.vocabulary.count() == 0)
        return bad("the model has no vocabulary");
    if (const Json* dropout = field(*model, "dropout");
        dropout && !(dropout->is_number() && dropout->get<double>() == 0.0))
        return notSupported(kPlace, "with dropout", "none");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (field(*model, affix) && !TRY(textField(*model, affix, kPlace)).empty())
            return notSupported(kPlace, std::string("with a ") + affix, "none");
    parts.options.byte_fallback = TRY(flagField(*model, "byte_fallback", false, kPlace));
    parts.options.fuse_unk = TRY(flagField(*model, "fuse_unk", false, kPlace));
    parts.options.ignore_merges = TRY(flagField(*model, "ignore_merges", false, kPlace));
    if (field(*model, "unk_token"))
        unk = TRY(textField(*model, "unk_token", kPlace));

    const std::size_t count = file.merges.ends.size() / 2;
    parts.merges.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::string_view left = file.merges.text(2 * i), right = file.merges.text(2 * i + 1);
        if (!addMerge(parts, left, right, static_cast<std::uint32_t>(i)))
            return bad("merge " + std::to_string(i) + " joins " + inQuotes(left) + " and " + inQuotes(right)
                + ", which are not both in the vocabulary together with their result");
    }
    return {};
}

// --- tokenizer_config.json ---

Error badConfig(const std::string& what)
{
    return {ErrorCode::format, "tokenizer_config.json: " + what + "; the file is damaged, fetch it again."};
}

// A named token is a text or an object with a content.
std::optional<std::string> namedToken(const Json& config, const char* key)
{
    const Json* found = field(config, key);
    if (found && found->is_object())
        found = field(*found, "content");
    if (!found || !found->is_string())
        return std::nullopt;
    return found->get<std::string>();
}

Result<Json> parseConfig(std::string_view text, const char* name)
{
    Json config = Json::object();
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        return config;
    config = Json::parse(text, nullptr, false);
    if (config.is_discarded() || !config.is_object())
        return Error {
            ErrorCode::format, std::string(name) + ": it is not a JSON object; the file is damaged, fetch it again."};
    return config;
}

Result<void> applyConfig(const Json& config, const Json& special_map, AddedTokens& added, TokenizerParts& parts)
{
    if (const Json* decoder = field(config, "added_tokens_decoder")) {
        if (!decoder->is_object())
            return badConfig("'added_tokens_decoder' is not an object");
        std::map<TokenId, AddedToken> entries; // in the order of ids
        for (const auto& [key, entry] : decoder->items()) {
            if (key.empty() || key.size() > 7 || key.find_first_not_of("0123456789") != std::string::npos
                || std::stol(key) > kTokenIdMax || !entry.is_object())
                return badConfig("'added_tokens_decoder' has an entry " + inQuotes(key) + " that is no token");
            entries.emplace(static_cast<TokenId>(std::stol(key)), TRY(readAddedToken(entry, "added_tokens_decoder")));
        }
        for (auto& [id, token] : entries)
            TRY(added.add(std::move(token), added.taken(id) ? std::nullopt : std::optional(id)));
    }
    const auto named = [&](const char* key) {
        auto found = namedToken(config, key);
        return found ? found : namedToken(special_map, key);
    };
    std::vector<std::string> special;
    for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"})
        if (const auto content = named(key)) {
            special.push_back(*content);
            const TokenId id = idOf(parts, *content);
            if (id != kNoToken && std::string_view(key) == "bos_token")
                parts.bos = id;
            if (id != kNoToken && std::string_view(key) == "eos_token")
                parts.eos = id;
        }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
        for (const Json* source : {&config, &special_map})
            if (const Json* list = field(*source, key); list && (list->is_array() || list->is_object()))
                for (const Json& entry : *list) {
                    const Json* content = entry.is_object() ? field(entry, "content") : &entry;
                    if (content && content->is_string())
                        special.push_back(content->get<std::string>());
                }
    for (const std::string& content : special) {
        if (AddedToken* token = added.find(content))
            token->special = true;
        else if (const TokenId id = parts.vocabulary.find(content);
                 id != kNoToken && !content.empty() && content.size() <= kAddedTokenBytesMax)
            TRY(added.add({.content = content, .special = true}, id));
    }
    return {};
}

// What transformers' classes change about the file's pipeline.
Result<void> applyClass(const Json& config, TokenizerParts& parts, std::vector<DecoderStep>& decoder)
{
    const Json* name = field(config, "tokenizer_class");
    const std::string type = name && name->is_string() ? name->get<std::string>() : std::string();
    const bool llama = type.starts_with("Llama") || type.starts_with("CodeLlama");
    const bool rebuilds = llama || type.starts_with("Gemma") || type.starts_with("Cohere");
    const auto flag = [&](const char* key, bool otherwise) {
        const Json* found = field(config, key);
        return found && found->is_boolean() ? found->get<bool>() : otherwise;
    };
    if (rebuilds && (field(config, "add_bos_token") || field(config, "add_eos_token"))) {
        parts.prefix.clear();
        parts.suffix.clear();
        if (flag("add_bos_token", true) && parts.bos)
            parts.prefix.push_back(*parts.bos);
        if (flag("add_eos_token", false) && parts.eos)
            parts.suffix.push_back(*parts.eos);
    }
    auto& steps = parts.normalizer.steps;
    if (llama && !flag("add_prefix_space", true) && !steps.empty() && steps.front().kind == Normalizer::Step::prepend) {
        steps.erase(steps.begin());
        std::erase_if(decoder, [](const DecoderStep& s) { return s.kind == DecoderStep::strip; });
    }
    return {};
}

Result<TokenizerParts> readParts(
    std::string_view tokenizer_json, std::string_view config_json, std::string_view special_map_json)
{
    Handler file;
    const bool parsed = Json::sax_parse(tokenizer_json, &file);
    if (file.error)
        return *std::move(file.error);
    if (!parsed || !file.root.is_object())
        return bad("it is not a JSON object");
    const Json config = TRY(parseConfig(config_json, "tokenizer_config.json"));
    const Json special_map = TRY(parseConfig(special_map_json, "special_tokens_map.json"));

    TokenizerParts parts;
    parts.vocabulary = std::move(file.vocabulary);
    std::string unk;
    TRY(readModel(file, parts, unk));

    AddedTokens added(parts);
    if (const Json* list = field(file.root, "added_tokens")) {
        if (!list->is_array())
            return bad("added_tokens is not a list");
        for (const Json& entry : *list) {
            AddedToken token = TRY(readAddedToken(entry, "added_tokens"));
            const Json* id = field(entry, "id");
            if (!id || !id->is_number_unsigned() || id->get<std::uint64_t>() > static_cast<std::uint64_t>(kTokenIdMax))
                return bad("the added token " + inQuotes(token.content) + " has no id from 0 to "
                    + std::to_string(kTokenIdMax));
            TRY(added.add(std::move(token), id->get<TokenId>()));
        }
    }
    TRY(applyConfig(config, special_map, added, parts));
    if (!unk.empty()) {
        parts.options.unk = parts.vocabulary.find(unk);
        if (parts.options.unk == kNoToken)
            return bad("the unk_token " + inQuotes(unk) + " is not in the vocabulary");
    }
    parts.normalizer = TRY(readNormalizer(field(file.root, "normalizer")));
    parts.pretokenizer = TRY(readPretokenizer(field(file.root, "pre_tokenizer")));
    parts.decoder = TRY(readDecoder(field(file.root, "decoder")));
    TRY(readPostProcessor(field(file.root, "post_processor"), parts));
    TRY(applyClass(config, parts, parts.decoder));
    return parts;
}

// Absent optional files are empty.
Result<std::string> readFile(const std::filesystem::path& path, bool required)
{
    std::error_code code;
    const std::uintmax_t size = std::filesystem::file_size(path, code);
    if (code && !required && code == std::errc::no_such_file_or_directory)
        return std::string();
    if (!code && size > kFileBytesMax)
        return Error {ErrorCode::format,
            path.filename().string() + " has " + std::to_string(size) + " bytes, expected at most "
                + std::to_string(kFileBytesMax) + "; it is no tokenizer file."};
    std::ifstream in(path, std::ios::binary);
    std::string text(code ? 0 : static_cast<std::size_t>(size), '\0');
    if (code || !in || !in.read(text.data(), static_cast<std::streamsize>(text.size())))
        return Error {ErrorCode::io, path.string() + " could not be read; check that it exists and may be read."};
    return text;
}

} // namespace

Result<Tokenizer> Tokenizer::fromJson(std::string_view tokenizer_json, std::string_view tokenizer_config_json)
{
    return Tokenizer(std::make_unique<Impl>(TRY(readParts(tokenizer_json, tokenizer_config_json, {}))));
}

Result<Tokenizer> Tokenizer::fromFolder(const std::filesystem::path& folder)
{
    std::error_code code;
    if (!std::filesystem::exists(folder / "tokenizer.json", code)) {
        for (const char* other : {"tokenizer.model", "tekken.json", "qwen.tiktoken", "vocab.json"})
            if (std::filesystem::exists(folder / other, code))
                return Error {ErrorCode::unsupported,
                    folder.string() + ": the tokenizer comes as " + other
                        + " only, which is not supported; put the model's tokenizer.json beside it."};
        return Error {
            ErrorCode::io, folder.string() + ": there is no tokenizer.json; fetch it from where the model came from."};
    }
    const std::string json = TRY(readFile(folder / "tokenizer.json", true));
    const std::string config = TRY(readFile(folder / "tokenizer_config.json", false));
    const std::string special_map = TRY(readFile(folder / "special_tokens_map.json", false));
    auto parts = readParts(json, config, special_map);
    if (!parts)
        return Error {parts.error().code, (folder / "").string() + parts.error().message};
    return Tokenizer(std::make_unique<Impl>(std::move(*parts)));
}

} // namespace puna
