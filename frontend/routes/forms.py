"""Form of an answer: all that makes the results of a request into its response. Kept beside a call that is answered later."""

import msgspec

from cluster_serving.frontend.v1.results import Answer as V1Answer
from cluster_serving.frontend.v2.answer import Answer as V2Answer
from cluster_serving.frontend.values.predictions import Predictions

Form = Predictions | V1Answer | V2Answer

encode_form = msgspec.json.Encoder().encode
decode_form = msgspec.json.Decoder[Form](Form).decode
