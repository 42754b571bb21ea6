"""Body of a request to `/predict` to records: JSON, a form or an image."""

from typing import Any

from cluster_serving.frontend.http.errors import BadRequest, UnsupportedMediaType
from cluster_serving.frontend.http.json_body import parse, refuse_callback
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.instances import encode_instance
from cluster_serving.frontend.values.json_values import Fields
from cluster_serving.frontend.values.uploads import form_instances, image_instances

_NO_INSTANCE = "no instance can be found, please check your input or json(keyword should be 'instances')"


def read_records(content_type: str, job: Job, most: int, body: bytes) -> list[Fields]:
    """Return the fields of a record for each instance in a body.

    Args:
        content_type: header `Content-Type`. JSON is read, unless it says form or image.
        job: job of the model.
        most: largest number of instances.
        body: body without compression.

    Raises:
        BadRequest: the body has no instances, or too many, or an instance does not fit the model.
        UnsupportedMediaType: the content type is `application/octet-stream`.
    """
    kind = content_type.partition(";")[0].strip().lower()
    instances: Any  # in JSON, a value of any type can stand in the place of the instances
    if kind == "multipart/form-data":
        instances = form_instances(body, content_type, job)
    elif kind.startswith("image/"):
        instances = image_instances(body)
    elif kind == "application/octet-stream":
        raise UnsupportedMediaType(
            "a body of application/octet-stream is not read: send JSON, multipart/form-data, or an image as image/jpeg, "
            "image/png, ..."
        )
    else:
        document = parse(body)
        fields: dict[str, Any] = document if isinstance(document, dict) else {}
        refuse_callback(fields.get("callback"))
        instances = fields.get("instances")
    if not isinstance(instances, list) or not instances:
        raise BadRequest(_NO_INSTANCE)
    if len(instances) > most:
        raise BadRequest(f"the request has {len(instances)} instances; at most {most} are taken (maxInstances)")
    records: list[Fields] = []
    for index, instance in enumerate(instances):
        try:
            records.append(encode_instance(instance, job))
        except BadRequest as error:
            raise BadRequest(f"instances[{index}]: {error}") from error
    return records
