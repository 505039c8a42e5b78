// promptfoo's command line: its model-graded assertions on outputs that were written before.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [, , input, output, folder] = process.argv;
const asked = JSON.parse(readFileSync(input, "utf-8"));
const judge = { id: "openai:chat:known", config: { apiBaseUrl: asked.base_url, apiKey: "none" } };
const kinds = {
  "llm-rubric": () => "Is it right?",
  "model-graded-closedqa": () => "Is it right?",
  factuality: (one) => one.reference,
  "g-eval": () => "Is it right?",
};
const tests = Object.entries(kinds).flatMap(([type, value]) =>
  asked.singles.map((one) => ({
    vars: { question: one.question, answer: one.answer },
    metadata: { type },
    assert: [{ type, value: value(one), provider: judge, threshold: type === "llm-rubric" ? undefined : 0 }],
  })),
);
const config = { prompts: ["{{answer}}"], providers: ["echo"], tests };
writeFileSync("config.json", JSON.stringify(config));
const command = join(folder, "node_modules", ".bin", "promptfoo");
const options = ["eval", "-c", "config.json", "-o", "results.json", "--no-cache", "--no-table", "--no-progress-bar"];
try {
  execFileSync(command, [...options, "-j", "1"], {
    env: { ...process.env, PROMPTFOO_CONFIG_DIR: process.cwd(), PROMPTFOO_DISABLE_TELEMETRY: "1",
           PROMPTFOO_DISABLE_UPDATE: "1", PROMPTFOO_DISABLE_REMOTE_GENERATION: "1" },
    stdio: ["ignore", "inherit", "inherit"],
  });
} catch (error) {
  if (error.status !== 100) throw error; // 100: some assertions failed, as they should
}
const found = Object.fromEntries(Object.keys(kinds).map((type) => [type, []]));
const results = JSON.parse(readFileSync("results.json", "utf-8")).results.results;
for (const one of results.sort((first, second) => first.testIdx - second.testIdx)) {
  const graded = one.gradingResult.componentResults[0];
  found[one.testCase.metadata.type].push({ pass: graded.pass, score: graded.score });
}
writeFileSync(output, JSON.stringify(found));
