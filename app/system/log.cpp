#include "app/system/log.h"

#include <QFile>

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace puna::app {

namespace {

constexpr std::size_t kLogBytesMax = 1 << 20;
constexpr std::size_t kOldLogs = 3;

void takeQtMessage(QtMsgType type, const QMessageLogContext&, const QString& message)
{
    constexpr spdlog::level::level_enum kLevels[] = {
        spdlog::level::debug, spdlog::level::warn, spdlog::level::err, spdlog::level::critical, spdlog::level::info};
    spdlog::log(kLevels[type], "qt: {}", message.toStdString());
}

} // namespace

void startLog(const QString& folder)
{
    auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    console->set_level(spdlog::level::warn);
    std::vector<spdlog::sink_ptr> sinks {console};
    try {
        sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
            QFile::encodeName(folder + QStringLiteral("/puna.log")).toStdString(), kLogBytesMax, kOldLogs));
    } catch (const spdlog::spdlog_ex& error) {
        spdlog::warn("the log in {} could not be opened: {}", folder.toStdString(), error.what());
    }
    auto logger = std::make_shared<spdlog::logger>("puna", sinks.begin(), sinks.end());
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
    logger->flush_on(spdlog::level::info);
    spdlog::set_default_logger(std::move(logger));
    qInstallMessageHandler(takeQtMessage);
}

} // namespace puna::app
