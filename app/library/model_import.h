// Which models a dropped path means, and whether they can be used. Reads names and headers only; changes nothing.
//
// Accepted: a .gguf file; a folder with weights; any .safetensors file or config.json (its folder is meant); a folder
// of such folders, three levels deep, as Hugging Face's cache keeps them. Only regular files and folders are opened,
// after resolving links. Blocks on the disk: call it off the GUI thread.
#pragma once

#include "app/storage/conversation_store.h"

#include <QList>
#include <QUrl>

#include <vector>

namespace puna::app {

struct FoundModel {
    QString path; // canonical; as given where it could not be resolved
    ModelRecord record;
    QString problem; // one sentence; empty: can be used
};

std::vector<FoundModel> findModels(const QList<QUrl>& urls);

} // namespace puna::app
