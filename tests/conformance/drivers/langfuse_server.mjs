// Langfuse: its managed evaluators, asked as its worker asks them (llmText.ts), at a custom OpenAI-compatible server.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , input, output, folder] = process.argv;
const asked = JSON.parse(readFileSync(input, "utf-8"));
const require = createRequire(join(folder, "node_modules", "driver.cjs"));
const { generateText, Output } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { z } = require("zod");

const provider = createOpenAICompatible({
  name: "openai",
  apiKey: "none",
  baseURL: asked.base_url,
  supportsStructuredOutputs: true,
});
const managed = JSON.parse(readFileSync(join(folder, "source/worker/src/constants/managed-evaluators.json"), "utf-8"));

function schemaOf({ dataType, reasoning, score }) {
  return z.object({
    reasoning: z.string().describe(reasoning.description ?? reasoning),
    score: (dataType === "BOOLEAN" ? z.boolean() : z.number()).describe(score.description ?? score),
  });
}

function filled(prompt, { question, answer, reference }) {
  return prompt.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => {
    if (/generation|output|answer|response/.test(name)) return answer;
    return /query|input|question/.test(name) ? question : reference;
  });
}

const found = {};
for (const { name, version, prompt, outputDefinition } of managed) {
  const kind = `${name} ${version}`;
  if (asked.kinds && !asked.kinds.includes(kind)) continue;
  found[kind] = [];
  for (const single of asked.singles) {
    try {
      const reply = await generateText({
        model: provider.languageModel("known"),
        messages: [{ role: "user", content: filled(prompt, single) }],
        output: Output.object({ schema: schemaOf(outputDefinition) }),
        maxRetries: 0,
      });
      found[kind].push(reply.output.score);
    } catch (error) {
      console.error(`${name}: ${error}`);
      found[kind].push(null);
    }
  }
}
writeFileSync(output, JSON.stringify(found));
