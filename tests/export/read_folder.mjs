// Opens exported folders with transformers.js and prints what it computes, as JSON.
//   node read_folder.mjs LIBRARY WORDS VECTORS CLASS TEXT MASKED
// LIBRARY: the path of @huggingface/transformers; CLASS: for folders whose model_type transformers.js does not have
import { pathToFileURL } from "node:url";

const [library, words, vectors, kind, text, masked] = process.argv.slice(2);
const { AutoTokenizer, FillMaskPipeline, env, pipeline, ...models } = await import(pathToFileURL(library));
env.allowRemoteModels = false;
env.localModelPath = "";
console.warn = console.info = () => {};

const options = { dtype: "fp32" };
const embed = await pipeline("feature-extraction", vectors, options);
const vector = await embed(text, { pooling: "mean" });
let guess;
if (kind) {
  const [tokenizer, model] = [await AutoTokenizer.from_pretrained(words), await models[kind].from_pretrained(words, options)];
  guess = new FillMaskPipeline({ task: "fill-mask", model, tokenizer });
} else {
  guess = await pipeline("fill-mask", words, options);
}
const guesses = (await guess(masked)).map(({ token_str, score }) => [token_str, score]);
process.stdout.write(JSON.stringify({ vector: Array.from(vector.data), guesses }));
