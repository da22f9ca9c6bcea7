// What goes from a chat to the engine's thread.
#pragma once

#include "engine/run/event.h"

#include <QtGlobal>

namespace puna::app {

struct AnswerRequest {
    qint64 answerId = 0; // the stored message that the answer becomes; names the job in every signal
    puna::GenerationRequest generation;
};

} // namespace puna::app
