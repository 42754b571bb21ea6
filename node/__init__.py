"""One machine's server: records of a Redis stream through a model, and results back, each once.

program ──► client/ ──► Redis ──► reader/ ──► ring/ ──► worker/ ──► ring/ ──► writer/ ──► Redis ──► client/ ──► program
            values       stream    decode,     slots     model       slots     results,    reply     replies,
            to bytes,              batch                 runs                  once        stream    bytes
            admission                                                          each        or hash   to values

beside it:   processing/ and engines/ + models/ do the work of reader and worker on values; supervisor/ starts and watches the
             three, told by config/, topology/ and job/; lifecycle/ and commands/ are how a person starts all this
"""
