// An assertion of promptfoo graded by a judge behind `judgelm serve`: does each answer agree with its reference?
//
//   export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused
//   promptfoo eval -c examples/integrations/with_promptfoo.mjs --no-cache
//
// promptfoo ends with 100 if an assertion fails: some of these answers are wrong.
import { readFileSync } from "node:fs";

const rows = readFileSync(new URL("answers.jsonl", import.meta.url), "utf-8").trim().split("\n");

export default {
  prompts: ["{{answer}}"],
  providers: ["echo"], // the model under evaluation; echo gives back the prompt
  tests: rows.map((row) => ({ vars: JSON.parse(row) })),
  defaultTest: {
    assert: [{ type: "llm-rubric", value: "Asked '{{question}}', the output says the same as: {{reference}}" }],
    options: { provider: "openai:chat:gpt-4o" },
  },
};
