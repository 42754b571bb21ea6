"""Original dialect: the format of records and results in Analytics Zoo 0.9 and later.

A request's `data` field is the base64 text of one Arrow IPC stream with one record batch. Each column of the batch is an input
of the model, in call order:

    image, string    utf8, 1 row: base64 text of an encoded image, or strings joined by `|`
    tensor           struct<indiceData: list<int32>, indiceShape: list<int32>, data: list<float32>, shape: list<int32>>,
                     4 rows. Row i sets field i alone:

        row    indiceData       indiceShape       data      shape
        0      [] or indices    -                 -         -
        1      -                [] or (rows,cols) -         -
        2      -                -                 values    -
        3      -                -                 -         dimensions

Next to a tensor, a utf8 column has three nulls below its value. With `serde` = `stream`, `data` is instead the JSON body
`{"instances": [{...}]}` of an HTTP request, as text.

A result's `value` field holds one of

    an Arrow IPC stream    base64 text, with one batch for each output: `data: float32` and `shape: int32`, as many rows as
                           elements, the dimensions in the first rows of `shape` and nulls below
    a text                 made by a filter
    `NaN`                  for a failed record
"""
