// promptfoo's command line: its model-graded assertions on outputs that were written before, and the best of two.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [, , input, output, folder] = process.argv;
const asked = JSON.parse(readFileSync(input, "utf-8"));
const judge = { id: "openai:chat:known", config: { apiBaseUrl: asked.base_url, apiKey: "none" } };

function evaluate(name, prompts, tests) {
  writeFileSync(`${name}.json`, JSON.stringify({ prompts, providers: ["echo"], tests }));
  const command = join(folder, "node_modules", ".bin", "promptfoo");
  const options = ["-o", `${name}-results.json`, "--no-cache", "--no-table", "--no-progress-bar", "-j", "1"];
  const quiet = ["TELEMETRY", "UPDATE", "REMOTE_GENERATION"].map((one) => [`PROMPTFOO_DISABLE_${one}`, "1"]);
  try {
    execFileSync(command, ["eval", "-c", `${name}.json`, ...options], {
      env: { ...process.env, PROMPTFOO_CONFIG_DIR: process.cwd(), ...Object.fromEntries(quiet) },
      stdio: ["ignore", "inherit", "inherit"],
    });
  } catch (error) {
    if (error.status !== 100) throw error; // 100: some assertions failed, as they should
  }
  const { results } = JSON.parse(readFileSync(`${name}-results.json`, "utf-8")).results;
  return results.sort((first, second) => first.testIdx - second.testIdx || first.promptIdx - second.promptIdx);
}

const kinds = {
  "llm-rubric": () => "Is it right?",
  "model-graded-closedqa": () => "Is it right?",
  factuality: (one) => one.reference,
  "g-eval": () => "Is it right?",
};

function verdicts() {
  const singles = Object.entries(kinds).flatMap(([type, value]) =>
    asked.singles.map((one) => ({
      vars: { question: one.question, answer: one.answer },
      metadata: { type },
      assert: [{ type, value: value(one), provider: judge }],
    })),
  );
  const found = Object.fromEntries(Object.keys(kinds).map((type) => [type, []]));
  for (const one of evaluate("singles", ["{{answer}}"], singles)) {
    const graded = one.gradingResult.componentResults[0];
    found[one.testCase.metadata.type].push({ pass: graded.pass, score: graded.score });
  }
  const pairs = asked.pairs.map(({ first, second }) => ({
    vars: { first, second },
    assert: [{ type: "select-best", value: "choose the right answer", provider: judge }],
  }));
  found["select-best"] = asked.pairs.map(() => []);
  for (const one of evaluate("pairs", ["{{first}}", "{{second}}"], pairs)) {
    found["select-best"][one.testIdx].push(one.success);
  }
  return found;
}

// The judge writes questions, whose embeddings are compared. Here all are alike, so it fails only without questions.
function relevance() {
  const embedding = "return { embedding: [1, 0] };";
  writeFileSync("same.mjs", `export default class { id() { return "same"; } async callEmbeddingApi() { ${embedding} } }`);
  const provider = { text: judge, embedding: "file://same.mjs" };
  const tests = asked.singles.map((one) => ({
    vars: { query: one.question, answer: one.answer },
    assert: [{ type: "answer-relevance", threshold: 0.5, provider }],
  }));
  return evaluate("relevance", ["{{answer}}"], tests).map((one) => one.success || null);
}

const found = asked.kinds ? { "answer-relevance": relevance() } : verdicts();
writeFileSync(output, JSON.stringify(found));
