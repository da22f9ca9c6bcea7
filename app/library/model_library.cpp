#include "app/library/model_library.h"

#include "app/chat/engine_worker.h"
#include "app/storage/store_thread.h"

#include <QDateTime>
#include <QFileInfo>
#include <QLocale>

#include <spdlog/spdlog.h>

#include <cmath>

namespace puna::app {

namespace {

const QString kOk = QStringLiteral("ok");
const QString kMissing = QStringLiteral("missing");
const QString kRefused = QStringLiteral("refused");

} // namespace

ModelLibrary::ModelLibrary(StoreThread& store, EngineWorker& engine, QObject* parent)
    : QObject(parent)
    , m_store(store)
    , m_engine(engine)
    , m_models(new ModelListModel(this))
{
    connect(&engine, &EngineWorker::loadStarted, this, &ModelLibrary::onLoadStarted);
    connect(&engine, &EngineWorker::loadProgress, this, [this](qint64 id, double fraction) {
        if (id != m_currentId || m_state != State::Loading)
            return;
        m_loadProgress = fraction;
        emit stateChanged();
    });
    connect(&engine, &EngineWorker::loaded, this, &ModelLibrary::onLoaded);
    connect(&engine, &EngineWorker::loadFailed, this, &ModelLibrary::onLoadFailed);
    connect(&engine, &EngineWorker::unloaded, this, &ModelLibrary::onUnloaded);
    connect(&engine, &EngineWorker::runningChanged, this, [this](int answers) {
        if (m_state == State::Ready || m_state == State::Busy)
            setState(answers > 0 ? State::Busy : State::Ready);
    });
}

ModelLibrary::~ModelLibrary()
{
    m_pool.waitForDone(); // what runs there delivers to this object
}

// Runs work in a pool thread, then done with its result here.
template <class Work, class Done> void ModelLibrary::inBackground(Work work, Done done)
{
    m_pool.start([this, work, done] {
        QMetaObject::invokeMethod(
            this, [done, result = work()] { done(result); }, Qt::QueuedConnection);
    });
}

QString ModelLibrary::unfinishedLoadKey()
{
    return QStringLiteral("unfinished_load");
}

void ModelLibrary::noteUnfinishedLoad(qint64 id)
{
    m_store.write([id](ConversationStore& store) { return store.setState(unfinishedLoadKey(), QString::number(id)); });
}

void ModelLibrary::setModels(std::vector<ModelRecord> models, qint64 lastUsedId, qint64 unfinishedLoadId)
{
    m_models->setModels(std::move(models));
    emit countChanged();
    refresh();
    const ModelRecord* last = m_models->find(lastUsedId);
    if (!last || m_currentId != 0)
        return;
    if (last->id == unfinishedLoadId) {
        setCurrent(last->id);
        setState(State::Failed,
            tr("Puna ended while it was loading %1 last time, so it was not loaded by itself.").arg(last->name));
    } else {
        load(last->id);
    }
}

QString ModelLibrary::currentName() const
{
    const ModelRecord* model = m_models->find(m_currentId);
    return model ? model->name : QString();
}

QString ModelLibrary::bpwText() const
{
    const ModelRecord* model = m_models->find(m_currentId);
    return model && model->bpw > 0 ? tr("%1 bpw").arg(QLocale().toString(model->bpw, 'f', 1)) : QString();
}

QString ModelLibrary::stateText() const
{
    switch (m_state) {
    case State::NotLoaded:
        return tr("Not loaded");
    case State::Loading:
        return tr("Loading %1 %").arg(static_cast<int>(std::lround(100.0 * m_loadProgress)));
    case State::Ready:
        return tr("Ready");
    case State::Busy:
        return tr("Busy");
    case State::Failed:
        return tr("Failed");
    }
    return {};
}

void ModelLibrary::setState(State state, const QString& problem)
{
    if (m_state == state && m_problem == problem)
        return;
    m_state = state;
    m_problem = problem;
    emit stateChanged();
}

void ModelLibrary::setCurrent(qint64 id)
{
    if (m_currentId == id)
        return;
    m_currentId = id;
    m_models->setCurrentId(id);
    emit currentChanged();
}

void ModelLibrary::load(qint64 id)
{
    const ModelRecord* model = m_models->find(id);
    if (!model)
        return;
    setCurrent(id);
    if (m_loadedId == id && (m_state == State::Ready || m_state == State::Busy))
        return;
    m_loadProgress = 0.0;
    setState(State::Loading);
    noteUnfinishedLoad(id);
    m_engine.load(id, model->path, model->name);
}

void ModelLibrary::ensureLoaded()
{
    if (m_state == State::NotLoaded)
        load(m_currentId);
}

void ModelLibrary::cancelLoad()
{
    if (m_state == State::Loading)
        m_engine.cancelLoad();
}

void ModelLibrary::unload()
{
    m_engine.unload();
}

void ModelLibrary::forget(qint64 id)
{
    if (!m_models->find(id))
        return;
    if (id == m_currentId) {
        m_engine.unload();
        setCurrent(0);
        setState(State::NotLoaded);
    }
    m_models->remove(id);
    emit countChanged();
    m_store.write([id](ConversationStore& store) { return store.forgetModel(id); });
}

void ModelLibrary::refresh()
{
    const auto missing = [records = m_models->records()] {
        std::vector<std::pair<qint64, QString>> problems;
        for (const ModelRecord& record : records)
            problems.emplace_back(record.id,
                QFileInfo::exists(record.path)
                    ? QString()
                    : tr("There is nothing at %1 now; connect its disk, or forget the model.").arg(record.path));
        return problems;
    };
    inBackground(missing, [this](const std::vector<std::pair<qint64, QString>>& problems) {
        for (const auto& [id, problem] : problems) {
            const int row = m_models->rowOf(id);
            const bool wasMissing = m_models->data(m_models->index(row), ModelListModel::StateRole) == kMissing;
            if (!problem.isEmpty())
                m_models->setProblem(id, kMissing, problem);
            else if (wasMissing)
                m_models->setProblem(id, kOk, {});
        }
    });
}

void ModelLibrary::importPaths(const QList<QUrl>& urls)
{
    if (urls.isEmpty())
        return;
    if (++m_imports == 1)
        emit importingChanged();
    inBackground([urls] { return findModels(urls); }, [this](const std::vector<FoundModel>& found) { adopt(found); });
}

void ModelLibrary::adopt(const std::vector<FoundModel>& found)
{
    std::vector<ModelRecord> usable;
    int refusals = 0;
    for (const FoundModel& model : found) {
        if (model.problem.isEmpty()) {
            usable.push_back(model.record);
            continue;
        }
        ++refusals;
        spdlog::warn("import: {}: {}", model.path.toStdString(), model.problem.toStdString());
        if (const ModelRecord* known = m_models->findPath(model.path))
            m_models->setProblem(known->id, kRefused, model.problem);
        emit refused(model.path, model.problem);
    }
    const auto add = [usable](ConversationStore& store) -> Result<std::vector<ModelRecord>> {
        return store.database().transaction([&]() -> Result<std::vector<ModelRecord>> {
            std::vector<ModelRecord> added;
            for (const ModelRecord& model : usable)
                added.push_back(TRY(store.addModel(model, QDateTime::currentMSecsSinceEpoch())));
            return added;
        });
    };
    m_store.run(add, this, [this, refusals](Result<std::vector<ModelRecord>> result) mutable {
        QStringList names;
        if (result) {
            for (const ModelRecord& model : *result) {
                m_models->put(model);
                names.append(model.name);
            }
            emit countChanged();
            // The first model of this person's, or one added when none could answer, is loaded at once.
            if (!result->empty() && !canAnswer())
                load(result->front().id);
        } else {
            ++refusals;
            emit refused({}, QString::fromStdString(result.error().message));
        }
        if (!names.isEmpty())
            emit imported(names);
        emit importFinished(static_cast<int>(names.size()), refusals);
        if (--m_imports == 0)
            emit importingChanged();
    });
}

void ModelLibrary::onLoadStarted(qint64 id)
{
    if (id == m_currentId)
        setState(State::Loading);
}

void ModelLibrary::onLoaded(qint64 id, const DeviceInfo& device, qint64 context)
{
    m_loadedId = id;
    m_deviceText = device.kind == "cpu" ? tr("CPU")
        : device.kind == "reference"    ? tr("CPU (reference)")
                                        : QString::fromStdString(device.name);
    m_deviceDetail = QString::fromStdString(device.kind == "cpu" ? device.name + ", " + device.detail : device.detail);
    m_contextTokens = static_cast<int>(context);
    emit deviceChanged();
    m_store.write([id](ConversationStore& store) { return store.useModel(id, QDateTime::currentMSecsSinceEpoch()); });
    if (id != m_currentId && m_state == State::NotLoaded && m_models->find(id))
        setCurrent(id); // the load of another was cancelled before it began
    if (id == m_currentId) {
        noteUnfinishedLoad(0);
        m_models->setProblem(id, kOk, {});
        setState(State::Ready);
    }
}

void ModelLibrary::onUnloaded()
{
    m_loadedId = 0;
    m_contextTokens = 0;
    emit deviceChanged();
    if (m_state != State::Loading)
        setState(State::NotLoaded);
}

void ModelLibrary::onLoadFailed(qint64 id, const QString& sentence, bool cancelled)
{
    if (id != m_currentId)
        return; // another one is being loaded
    noteUnfinishedLoad(0);
    m_loadedId = 0;
    m_contextTokens = 0;
    emit deviceChanged();
    if (cancelled) {
        setState(State::NotLoaded);
        return;
    }
    m_models->setProblem(id,
        QFileInfo::exists(m_models->find(id) ? m_models->find(id)->path : QString()) ? kRefused : kMissing, sentence);
    setState(State::Failed, sentence);
}

} // namespace puna::app
