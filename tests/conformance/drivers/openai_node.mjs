// The openai package for JavaScript: chats, several replies, a stream, a refusal.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , input, output, folder] = process.argv;
const require = createRequire(pathToFileURL(join(folder, "package.json")));
const OpenAI = require("openai");

const asked = JSON.parse(readFileSync(input, "utf-8"));
const client = new (OpenAI.default ?? OpenAI)({ baseURL: asked.base_url, apiKey: "none" });
const chat = (prompt, more) =>
  client.chat.completions.create({ model: "known", messages: [{ role: "user", content: prompt }], ...more });

const found = { texts: [], several: [], streamed: [] };
for (const prompt of asked.prompts) {
  found.texts.push((await chat(prompt)).choices[0].message.content);
  found.several.push((await chat(prompt, { n: 3 })).choices.map((one) => one.message.content));
  let text = "";
  for await (const piece of await chat(prompt, { stream: true })) text += piece.choices[0]?.delta?.content ?? "";
  found.streamed.push(text);
}
try {
  await chat("Hello, who are you?");
} catch (error) {
  found.refused = error.code;
}
writeFileSync(output, JSON.stringify(found));
