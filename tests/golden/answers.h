// Whole answers: from a conversation through template, tokenizer, engine and sampler to the text, against what
// Transformers answered greedily.
#pragma once

#include "engine/engine.h"

#include <string>
#include <vector>

namespace puna::test {

bool goldenAnswersAvailable(); // the starter model and the golden data

// One sentence for each conversation (by index, 0 to 15) whose prompt, tokens or text differ. Tokens must be equal
// up to the first step whose margin in the reference is below `margin`.
std::vector<std::string> differingAnswers(
    DeviceKind device, double margin, const std::vector<std::size_t>& conversations);

} // namespace puna::test
