#!/usr/bin/env python3
"""Writes unicode_tables.inc: what the tokenizers core's regex engine (Unicode 16) takes for letters, marks, numbers ...

  python3 make_unicode_tables.py unicode-classes.json > unicode_tables.inc

The input has the ranges of each class, measured code point by code point out of that engine. "Late" are the characters
that a library of Unicode 14 (PCRE2 10.42) has no class for; this needs a Python whose own tables are Unicode 14.
"""
import json
import sys
import unicodedata

assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
classes = json.load(open(sys.argv[1], encoding="utf-8"))
NAMES = ["other", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "N", "P", "S"]
category = bytearray(0x110000)
for name in ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S"]:
    for first, last in classes["\\p{%s}" % name]:
        for c in range(first, last + 1):
            assert not category[c]
            category[c] = NAMES.index(name)
for first, last in classes["\\d"]:
    for c in range(first, last + 1):
        assert category[c] == NAMES.index("N")
        category[c] = NAMES.index("Nd")


def of_python(c):
    name = unicodedata.category(chr(c))
    if name in NAMES:
        return NAMES.index(name)
    return NAMES.index(name[0]) if name[0] in "MNPS" else 0


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def array(name, comment, values):
    print(f"// {comment}\ninline constexpr std::uint32_t {name}[] = {{")
    line = "   "
    for value in values:
        text = f" 0x{value:x},"
        if len(line) + len(text) > 118:
            print(line)
            line = "   "
        line += text
    print(line + "\n};\n")


surrogate = range(0xD800, 0xE000)
late = [c for c in range(0x110000) if c not in surrogate and category[c] != of_python(c)]
assert not any(of_python(c) for c in late)  # no character has changed its class
print("// Made by make_unicode_tables.py. Do not edit.\n// clang-format off\n")
runs, previous = [], None
for c in range(0x110000):
    if category[c] != previous:
        previous = category[c]
        runs.append(c << 4 | previous)
array("kCategoryRuns", "first code point << 4 | category, each run up to the next one's start", runs)
array("kWordRanges", "\\w: first, last", [x for r in classes["\\w"] for x in r])
array("kHanRanges", "\\p{Han}: first, last", [x for r in classes["\\p{Han}"] for x in r])
array("kLateRanges", "no class in Unicode 14: first, last", [x for r in ranges(late) for x in r])
