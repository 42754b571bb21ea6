// The same call for a shell and for Python.

const WORDS = { true: "True", false: "False", null: "None" };

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function body({ isWhole }, record) {
  return isWhole ? `{"inputs": ${record}}` : `{"instances": [${record}]}`;
}

function record(values, ofFile, ofJson) {
  return `{${values.map(({ name, file, json }) => `${JSON.stringify(name)}: ${file ? ofFile(file) : ofJson(json)}`).join(", ")}}`;
}

/**
 * A command for a shell.
 *
 * @param about {url, isWhole, needsKey}
 * @param values {name, json} or {name, file} of each input.
 */
export function curl(about, values) {
  const key = about.needsKey ? ' -H "X-API-Key: $API_KEY"' : "";
  const address = `${quoted(about.url)}${key}`;
  if (!values.some((value) => value.file)) return `curl ${address} -d ${quoted(body(about, record(values, null, (json) => json)))}`;
  // The words of the shell: text in quotes, with the output of base64 between them.
  const mark = (file) => `{"b64": "\u0000${file}\u0000"}`;
  const parts = body(about, record(values, mark, (json) => json)).split("\u0000");
  const words = parts.map((part, at) => (at % 2 ? `"$(base64 -w0 ${quoted(part)})"` : quoted(part)));
  return `printf %s ${words.join("")} |\n  curl ${address} -d @-`;
}

/** A program of Python that needs no package. The arguments are those of `curl`. */
export function python(about, values) {
  const literal = (json) => json.replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (word) => WORDS[word] ?? word);
  const content = (file) => `{"b64": base64.b64encode(open(${JSON.stringify(file)}, "rb").read()).decode()}`;
  const imports = [values.some((value) => value.file) && "base64", "json", about.needsKey && "os", "urllib.request"].filter(Boolean);
  return [
    ...imports.map((name) => `import ${name}`),
    "",
    `body = ${body(about, record(values, content, literal))}`,
    `request = urllib.request.Request(${JSON.stringify(about.url)}, json.dumps(body).encode())`,
    ...(about.needsKey ? ['request.add_header("X-API-Key", os.environ["API_KEY"])'] : []),
    "with urllib.request.urlopen(request) as reply:",
    "    print(json.load(reply))",
  ].join("\n");
}
