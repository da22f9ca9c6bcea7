// ModelLibrary: the models this person has added, and the one in the engine.
//
// Models are used where they lie; adding one reads its headers only (off the GUI thread) and stores path and facts.
// The one used last is loaded at start. Loading another takes effect with the next answer: an answer under way is
// completed first. Everything a path can be wrong about comes back as refused(path, sentence).
#pragma once

#include "app/library/model_import.h"
#include "app/library/model_list_model.h"
#include "engine/engine.h"

#include <QObject>
#include <QQmlEngine>
#include <QStringList>
#include <QThreadPool>
#include <QUrl>

namespace puna::app {

class EngineWorker;
class StoreThread;

class ModelLibrary : public QObject {
    Q_OBJECT
    QML_ELEMENT
    QML_UNCREATABLE("Made by ChatController")
    Q_PROPERTY(puna::app::ModelListModel* models READ models CONSTANT FINAL)
    Q_PROPERTY(int count READ count NOTIFY countChanged FINAL)
    Q_PROPERTY(qint64 currentId READ currentId NOTIFY currentChanged FINAL) // chosen; 0: none
    Q_PROPERTY(bool chosen READ chosen NOTIFY currentChanged FINAL) // there is a current one
    Q_PROPERTY(QString currentName READ currentName NOTIFY currentChanged FINAL)
    Q_PROPERTY(QString bpwText READ bpwText NOTIFY currentChanged FINAL) // "4.0 bpw"
    Q_PROPERTY(State state READ state NOTIFY stateChanged FINAL)
    Q_PROPERTY(QString stateText READ stateText NOTIFY stateChanged FINAL) // "Loading 62 %"
    Q_PROPERTY(double loadProgress READ loadProgress NOTIFY stateChanged FINAL)
    Q_PROPERTY(QString problem READ problem NOTIFY stateChanged FINAL) // why it failed, one sentence
    Q_PROPERTY(QString deviceText READ deviceText NOTIFY deviceChanged FINAL) // "CPU", "NVIDIA H200"; empty: none yet
    Q_PROPERTY(QString deviceDetail READ deviceDetail NOTIFY deviceChanged FINAL) // instruction set, why no GPU
    Q_PROPERTY(int contextTokens READ contextTokens NOTIFY deviceChanged FINAL)
    Q_PROPERTY(bool importing READ importing NOTIFY importingChanged FINAL)

public:
    enum class State { NotLoaded, Loading, Ready, Busy, Failed };
    Q_ENUM(State)

    ModelLibrary(StoreThread& store, EngineWorker& engine, QObject* parent = nullptr);
    ~ModelLibrary() override;

    // From the store at start. Loads the model used last, unless the program ended while it was being loaded.
    void setModels(std::vector<ModelRecord> models, qint64 lastUsedId, qint64 unfinishedLoadId);
    static QString unfinishedLoadKey(); // of ConversationStore::state()

    ModelListModel* models() { return m_models; }
    int count() const { return m_models->rowCount(); }
    qint64 currentId() const { return m_currentId; }
    bool chosen() const { return m_currentId != 0; }
    QString currentName() const;
    QString bpwText() const;
    State state() const { return m_state; }
    QString stateText() const;
    double loadProgress() const { return m_loadProgress; }
    QString problem() const { return m_problem; }
    QString deviceText() const { return m_deviceText; }
    QString deviceDetail() const { return m_deviceDetail; }
    int contextTokens() const { return m_contextTokens; }
    bool importing() const { return m_imports > 0; }

    Q_INVOKABLE void load(qint64 id);
    Q_INVOKABLE void loadChosen() { load(m_currentId); } // once more, after a failure
    Q_INVOKABLE void cancelLoad();
    Q_INVOKABLE void unload(); // ends answers under way
    Q_INVOKABLE void forget(qint64 id); // its files stay
    Q_INVOKABLE void importPaths(const QList<QUrl>& urls);
    Q_INVOKABLE void refresh(); // looks again which models' files are there

    // A model is there to answer, now or after it has been loaded.
    bool canAnswer() const { return m_currentId != 0 && m_state != State::Failed; }
    void ensureLoaded(); // loads the chosen model if it was unloaded

signals:
    void countChanged();
    void currentChanged();
    void stateChanged();
    void deviceChanged();
    void importingChanged();
    void imported(const QStringList& names);
    void refused(const QString& path, const QString& sentence);
    void importFinished(int added, int refusedCount); // after all signals of one importPaths()

private:
    void setState(State state, const QString& problem = {});
    void setCurrent(qint64 id);
    void noteUnfinishedLoad(qint64 id);
    template <class Work, class Done> void inBackground(Work work, Done done);
    void adopt(const std::vector<FoundModel>& found);
    void onLoadStarted(qint64 id);
    void onLoaded(qint64 id, const puna::DeviceInfo& device, qint64 context);
    void onUnloaded();
    void onLoadFailed(qint64 id, const QString& sentence, bool cancelled);

    StoreThread& m_store;
    EngineWorker& m_engine;
    ModelListModel* m_models;
    qint64 m_currentId = 0;
    qint64 m_loadedId = 0;
    State m_state = State::NotLoaded;
    double m_loadProgress = 0.0;
    QString m_problem;
    QString m_deviceText;
    QString m_deviceDetail;
    int m_contextTokens = 0;
    int m_imports = 0; // under way
    QThreadPool m_pool; // looks at files
};

} // namespace puna::app
