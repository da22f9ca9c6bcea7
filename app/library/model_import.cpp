#include "app/library/model_import.h"

#include "engine/engine.h"

#include <QDir>
#include <QDirIterator>
#include <QFile>
#include <QFileInfo>
#include <QSet>

#include <filesystem>

namespace puna::app {

namespace {

constexpr int kDepth = 3; // folders below the dropped one
constexpr int kEntriesMax = 20'000; // looked at in all
constexpr int kModelsMax = 200;

const QString kUsable = QStringLiteral("EXL2, GPTQ, FP16 and GGUF models can be used");

bool isGguf(const QString& name)
{
    return name.endsWith(QLatin1String(".gguf"), Qt::CaseInsensitive);
}

bool isSafetensors(const QString& name)
{
    return name.endsWith(QLatin1String(".safetensors"), Qt::CaseInsensitive);
}

bool isPickle(const QString& name)
{
    for (const char* ending : {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
        if (name.endsWith(QLatin1String(ending), Qt::CaseInsensitive))
            return true;
    return false;
}

bool isArchive(const QString& name)
{
    for (const char* ending : {".zip", ".tar", ".gz", ".tgz", ".xz", ".zst", ".bz2", ".7z", ".rar"})
        if (name.endsWith(QLatin1String(ending), Qt::CaseInsensitive))
            return true;
    return false;
}

class Search {
public:
    void add(const QUrl& url)
    {
        if (!url.isLocalFile() || !url.host().isEmpty()) {
            refuse(url.toDisplayString(),
                QStringLiteral("Only files and folders of this computer can be added; this is an address."));
            return;
        }
        const QString given = url.toLocalFile();
        const QFileInfo info(given);
        const QString path = info.canonicalFilePath();
        if (path.isEmpty()) {
            refuse(given, QStringLiteral("There is nothing at %1.").arg(given));
            return;
        }
        const QFileInfo real(path);
        if (!real.isReadable() || (real.isDir() && !real.isExecutable())) {
            refuse(path, QStringLiteral("%1 cannot be read; its permissions do not allow it.").arg(path));
        } else if (real.isDir()) {
            const std::size_t before = found.size();
            const bool again = m_seen.contains(path); // by way of another one that was given
            searchFolder(path, 0);
            if (found.size() == before && !again)
                refuseFolder(path);
        } else if (!real.isFile()) {
            refuse(path, QStringLiteral("%1 is a device, pipe or socket; a model is a file or a folder.").arg(path));
        } else {
            addFile(path, info);
        }
    }

    std::vector<FoundModel> found;

private:
    void refuse(const QString& path, const QString& problem) { found.push_back({path, {}, problem}); }

    void addFile(const QString& path, const QFileInfo& given)
    {
        // Of a Hugging Face cache the link has the name and the folder; what it points to has neither.
        const QString name = given.fileName();
        if (isGguf(name))
            inspect(path);
        else if (isSafetensors(name) || name == QLatin1String("config.json")
            || name.endsWith(QLatin1String(".safetensors.index.json")))
            inspect(QFileInfo(given.absolutePath()).canonicalFilePath());
        else if (isPickle(name))
            refuse(path,
                QStringLiteral(
                    "%1 is of a file type that can run programs when opened, so it was not opened; look for a "
                    "safetensors version of the model.")
                    .arg(name));
        else if (isArchive(name))
            refuse(path, QStringLiteral("%1 is an archive; unpack it and add the folder.").arg(name));
        else
            refuse(path, QStringLiteral("%1 is not a model; %2.").arg(name, kUsable));
    }

    void searchFolder(const QString& path, int depth)
    {
        if (m_seen.contains(path) || m_entries > kEntriesMax || found.size() >= kModelsMax)
            return;
        m_seen.insert(path);
        // Unsorted and entry by entry: a folder may have a million.
        QStringList folders;
        QStringList ggufs;
        bool weights = false;
        QDirIterator entries(path, QDir::AllEntries | QDir::NoDotAndDotDot | QDir::System);
        while (entries.hasNext() && ++m_entries <= kEntriesMax) {
            entries.next();
            const QFileInfo info = entries.fileInfo();
            const QString name = info.fileName();
            if (info.isDir())
                folders.append(info.filePath());
            else if (!info.isFile())
                continue;
            else if (isSafetensors(name))
                weights = true;
            else if (isGguf(name))
                ggufs.append(info.filePath());
            else if (isPickle(name))
                m_pickle = name;
        }
        if (weights)
            inspect(path);
        ggufs.sort();
        for (const QString& gguf : ggufs)
            inspect(QFileInfo(gguf).canonicalFilePath());
        folders.sort();
        if (depth < kDepth)
            for (const QString& folder : folders)
                if (const QString real = QFileInfo(folder).canonicalFilePath(); !real.isEmpty())
                    searchFolder(real, depth + 1);
    }

    void refuseFolder(const QString& path)
    {
        if (m_entries > kEntriesMax)
            refuse(path,
                QStringLiteral("No model was found among the first %1 files of %2; add the model's own folder.")
                    .arg(kEntriesMax)
                    .arg(path));
        else if (!m_pickle.isEmpty())
            refuse(path,
                QStringLiteral(
                    "%1 has weights only in a file type that can run programs when opened (%2), so they were not "
                    "opened; look for a safetensors version of the model.")
                    .arg(path, m_pickle));
        else
            refuse(path,
                QStringLiteral("No model was found in %1: no .safetensors and no .gguf file; %2.").arg(path, kUsable));
    }

    void inspect(const QString& path)
    {
        if (m_inspected.contains(path) || found.size() >= kModelsMax)
            return;
        m_inspected.insert(path);
        FoundModel model {path, {}, {}};
        try {
            const ModelInfo info = inspectModel(std::filesystem::path(QFile::encodeName(path).toStdString()));
            model.record.path = path;
            model.record.name = QString::fromStdString(info.name);
            model.record.format = QString::fromStdString(info.format);
            model.record.bpw = info.bpw;
            model.record.weightBytes = info.weight_bytes.count;
            model.record.maxContext = info.max_context;
            if (model.record.name.trimmed().isEmpty())
                model.record.name = QFileInfo(path).completeBaseName();
            if (!info.ok) {
                QStringList problems;
                for (const std::string& problem : info.problems)
                    problems.append(QString::fromStdString(problem));
                model.problem = problems.isEmpty() ? QStringLiteral("%1 cannot be used; %2.").arg(path, kUsable)
                                                   : problems.join(QLatin1Char(' '));
            }
        } catch (const std::exception& error) {
            model.problem =
                QStringLiteral("%1 could not be examined (%2).").arg(path, QString::fromLocal8Bit(error.what()));
        }
        found.push_back(std::move(model));
    }

    QSet<QString> m_seen;
    QSet<QString> m_inspected;
    QString m_pickle;
    int m_entries = 0;
};

} // namespace

std::vector<FoundModel> findModels(const QList<QUrl>& urls)
{
    Search search;
    for (const QUrl& url : urls)
        search.add(url);
    return std::move(search.found);
}

} // namespace puna::app
