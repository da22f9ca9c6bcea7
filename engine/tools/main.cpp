// puna-engine: the engine on the command line. This file holds the options; the work is in one file per subcommand.
#include "engine/tools/tool.h"

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <clocale>
#include <cstdio>
#include <new>
#include <random>

namespace puna::tool {
namespace {

// --- values that CLI11 hands over as text ---

void parseDevice(const std::string& text, LoadOptions& load)
{
    if (text == "auto")
        load.device = DeviceKind::automatic;
    else if (text == "cpu")
        load.device = DeviceKind::cpu;
    else if (text == "reference")
        load.device = DeviceKind::reference;
    else if (text.starts_with("cuda")) {
        load.device = DeviceKind::cuda;
        if (text.size() > 5)
            load.cuda_index = std::stoi(text.substr(5));
    }
}

std::string checkDevice(const std::string& text)
{
    if (text == "auto" || text == "cpu" || text == "reference" || text == "cuda")
        return {};
    if (text.starts_with("cuda:") && text.size() > 5 && text.size() < 9
        && text.find_first_not_of("0123456789", 5) == std::string::npos)
        return {};
    return "expected auto, cpu, cuda, cuda:N or reference";
}

void addCommon(CLI::App* command, Common& common, bool model_required = true)
{
    auto* model = command->add_option("MODEL", common.model, "A model's folder, or a .gguf file");
    model->required(model_required);
    command->add_flag("--json", common.json, "One JSON document on stdout");
    command
        ->add_option_function<std::string>(
            "--log", [](const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); },
            "Messages on stderr from this level on")
        ->type_name("LEVEL")
        ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}));
}

void addDevice(CLI::App* command, Common& common)
{
    command
        ->add_option_function<std::string>(
            "--device", [&](const std::string& text) { parseDevice(text, common.load); },
            "auto (a GPU where there is one), cpu, cuda[:N] or reference (plain float32, slow)")
        ->type_name("DEVICE")
        ->check(checkDevice);
    command->add_option("--threads", common.load.threads, "CPU threads; default: one per physical core")
        ->check(CLI::Range(1, 1024));
    command->add_option("--context", common.load.context, "Tokens that the model keeps in sight")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t {1}, std::int64_t {1} << 30));
    command
        ->add_option_function<std::string>(
            "--kv", [](const std::string&) {}, "Element type of the KV cache")
        ->type_name("TYPE")
        ->check(CLI::IsMember({"fp16"}));
}

// --- subcommands; each returns what runs it ---

using Work = std::function<int()>;

Work addInspect(CLI::App& app)
{
    auto options = std::make_shared<Common>();
    CLI::App* command = app.add_subcommand("inspect", "Can this model run, and if not, why");
    addCommon(command, *options);
    return [options] { return inspect(*options); };
}

Work addRun(CLI::App& app)
{
    auto options = std::make_shared<RunOptions>();
    CLI::App* command = app.add_subcommand("run", "Answer a prompt, or hold a conversation");
    addCommon(command, options->common);
    addDevice(command, options->common);
    SamplingParams& sampling = options->request.sampling;
    sampling.seed = std::random_device {}();
    auto* prompt =
        command->add_option("--prompt", options->prompt, "What to answer, or to continue")->type_name("TEXT");
    auto* chat = command->add_flag("--chat", options->chat, "Apply the model's chat template");
    auto* interactive = command->add_flag("-i", options->interactive, "Hold a conversation; one line is one message");
    command->add_option("--system", options->system, "System message (with --chat or -i)")->type_name("TEXT");
    auto* messages =
        command->add_option("--messages", options->messages, "Conversation so far: a JSON list of {role, content}")
            ->type_name("FILE");
    command->add_option("--max-tokens", options->request.max_tokens, "Length of the answer; default: as long as fits")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 30));
    command->add_option("--temperature", sampling.temperature, "0: always the likeliest token")->capture_default_str();
    command->add_option("--top-k", sampling.top_k, "Among the k likeliest; 0: off")->capture_default_str();
    command->add_option("--top-p", sampling.top_p, "Among the likeliest that make up p; 1: off")->capture_default_str();
    command->add_option("--min-p", sampling.min_p, "At least so likely as a share of the likeliest; 0: off")
        ->capture_default_str();
    command->add_option("--repetition-penalty", sampling.repetition_penalty, "1: off")->capture_default_str();
    command->add_option("--seed", sampling.seed, "The same seed gives the same answer; default: another each time");
    command->add_option("--stop", options->request.stop, "Ends the answer where it appears")
        ->type_name("TEXT")
        ->take_all()
        ->allow_extra_args(false);
    return [=] {
        if (prompt->empty() && messages->empty() && interactive->empty())
            throw CLI::RequiredError("--prompt, --messages or -i");
        if (chat->empty() && interactive->empty() && (!messages->empty() || !options->system.empty()))
            throw CLI::ValidationError("--messages and --system", "they need --chat or -i");
        if (options->common.json && !interactive->empty())
            throw CLI::ValidationError("--json", "a conversation (-i) has no JSON document");
        return run(*options);
    };
}

Work addTokenize(CLI::App& app)
{
    auto options = std::make_shared<TokenizeOptions>();
    CLI::App* command = app.add_subcommand("tokenize", "Token ids of a text, or the other way");
    addCommon(command, options->common);
    auto* source = command->add_option_group("source")->require_option(1);
    source->add_option("--text", options->text, "The text")->type_name("TEXT");
    source->add_option("--text-file", options->text_file, "A file that holds it")->type_name("FILE");
    source->add_option("--decode", options->decode, "Token ids: their text")->delimiter(',')->type_name("1,2,3");
    command->add_flag("--no-special", options->no_special, "Control tokens in the text stay text");
    command->add_flag("--add-special", options->add_special, "Add BOS and the like, as the model wants them");
    return [options] { return tokenize(*options); };
}

Work addRender(CLI::App& app)
{
    auto options = std::make_shared<RenderOptions>();
    CLI::App* command = app.add_subcommand("render", "What a chat template makes of a context of variables");
    addCommon(command, options->common, false);
    auto* chat_template =
        command->add_option("--template", options->chat_template, "Instead of a model's")->type_name("FILE.jinja");
    command->add_option("--context", options->context, "Variables: messages, tools, add_generation_prompt ...; now")
        ->type_name("FILE.json")
        ->required();
    return [=] {
        if (chat_template->empty() == options->common.model.empty())
            throw CLI::RequiredError("MODEL or --template");
        return render(*options);
    };
}

Work addLogits(CLI::App& app)
{
    auto options = std::make_shared<LogitsOptions>();
    CLI::App* command = app.add_subcommand("logits", "Logits of every position of a sequence of tokens");
    addCommon(command, options->common);
    addDevice(command, options->common);
    command->add_option("--tokens", options->tokens, "Token ids")->delimiter(',')->type_name("1,2,3")->required();
    command->add_option("--out", options->out, "Where to: tensor 'logits', float32")
        ->type_name("FILE.safetensors")
        ->required();
    command->add_flag("--one-by-one", options->one_by_one, "Compute them as decoding does, not in one prefill");
    return [options] { return logits(*options); };
}

Work addPerplexity(CLI::App& app)
{
    auto options = std::make_shared<PerplexityOptions>();
    CLI::App* command = app.add_subcommand("perplexity", "How well the model predicts a text; --context: the window");
    addCommon(command, options->common);
    addDevice(command, options->common);
    command->add_option("--text-file", options->text_file, "The text")->type_name("FILE")->required();
    command->add_option("--windows", options->windows, "Stop after so many")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 30));
    command->add_option("--save-logits", options->save_logits, "Keep the logits, for --against")->type_name("FOLDER");
    command->add_option("--against", options->against, "KL divergence to the run that saved its logits there")
        ->type_name("FOLDER");
    return [options] { return perplexity(*options); };
}

Work addBench(CLI::App& app)
{
    auto options = std::make_shared<BenchOptions>();
    CLI::App* command = app.add_subcommand("bench", "How fast the model runs here");
    addCommon(command, options->common);
    addDevice(command, options->common);
    command->add_option("--runs", options->runs, "Figures are the median of so many")
        ->capture_default_str()
        ->type_name("N")
        ->check(CLI::Range(1, 1000));
    const auto list = [&](const char* name, std::vector<std::int64_t>& values, const char* what) {
        command->add_option(name, values, what)
            ->delimiter(',')
            ->type_name("N,...")
            ->check(CLI::Range(std::int64_t {1}, std::int64_t {1} << 30));
    };
    list("--prefill", options->prefill, "Lengths of prompts");
    list("--decode", options->decode, "Contexts at which to decode");
    list("--batch", options->batch, "Numbers of jobs at once");
    return [options] { return bench(*options); };
}

int main(int argc, char** argv)
{
    std::setlocale(LC_TIME, "C");
    watchInterrupts();
    spdlog::set_default_logger(spdlog::stderr_logger_mt("puna-engine"));
    spdlog::set_level(spdlog::level::warn);

    CLI::App app("Puna's engine: local language models on the command line.", "puna-engine");
    app.require_subcommand(1);
    app.set_version_flag("--version", PUNA_VERSION);
    const std::vector<Work> works {addInspect(app), addRun(app), addTokenize(app), addRender(app), addLogits(app),
        addPerplexity(app), addBench(app)};
    try {
        app.parse(argc, argv);
        const auto commands = app.get_subcommands([](CLI::App*) { return true; });
        for (std::size_t i = 0; i < works.size(); ++i)
            if (commands[i]->parsed())
                return works[i]();
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::bad_alloc&) {
        return fail("There is not enough memory for this.");
    }
    return 2;
}

} // namespace
} // namespace puna::tool

int main(int argc, char** argv)
{
    return puna::tool::main(argc, argv);
}
