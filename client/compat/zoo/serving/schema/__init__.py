"""Values of a record under the name of Analytics Zoo's schema."""

from cluster_serving_compat.beside import refuse_beside_original

refuse_beside_original(__file__)

from cluster_serving_compat.schema import encode_image, get_field_and_data  # noqa: E402

__all__ = ["encode_image", "get_field_and_data"]
