// One turn of an agent with each SDK: the tools, the model's calls, and their answers.

import type Anthropic from "@anthropic-ai/sdk";
import { generateText, stepCountIs } from "ai";
import type { LanguageModel } from "ai";
import type OpenAI from "openai";
import type { Run } from "workspaced-client";
import * as ai from "workspaced-client/ai";
import * as anthropic from "workspaced-client/anthropic";
import { answerChat, answerResponse, chatTools, responseTools, toolsFor } from "workspaced-client/openai";

export async function turnOfChat(openai: OpenAI, run: Run, messages: OpenAI.Chat.ChatCompletionMessageParam[]) {
  const tools: OpenAI.Chat.ChatCompletionTool[] = await chatTools(run);
  const { choices } = await openai.chat.completions.create({ model: "gpt-5.4", messages, tools });
  const message = choices[0]!.message;
  messages.push(message);
  for (const call of message.tool_calls ?? []) messages.push(await answerChat(run, call));
}

export async function turnOfResponses(openai: OpenAI, run: Run, input: OpenAI.Responses.ResponseInputItem[]) {
  const tools: OpenAI.Responses.Tool[] = await responseTools(run);
  const { output } = await openai.responses.create({ model: "gpt-5.4", input, tools });
  for (const item of output) {
    if (item.type !== "function_call") continue;
    input.push(item, await answerResponse(run, item));
  }
}

export async function runnerOfChat(openai: OpenAI, run: Run, messages: OpenAI.Chat.ChatCompletionMessageParam[]) {
  return openai.chat.completions.runTools({ model: "gpt-5.4", messages, tools: await toolsFor(run) }).finalContent();
}

export async function turnOfMessages(client: Anthropic, run: Run, messages: Anthropic.MessageParam[]) {
  const tools: Anthropic.ToolUnion[] = await anthropic.messageTools(run);
  const { content } = await client.messages.create({ model: "claude-opus-5-5", max_tokens: 4096, messages, tools });
  messages.push({ role: "assistant", content });
  const answers = [];
  for (const block of content) if (block.type === "tool_use") answers.push(await anthropic.answer(run, block));
  messages.push({ role: "user", content: answers });
}

export async function runnerOfMessages(client: Anthropic, run: Run, messages: Anthropic.Beta.BetaMessageParam[]) {
  const tools = await anthropic.toolsFor(run);
  return client.beta.messages.toolRunner({ model: "claude-opus-5-5", max_tokens: 4096, max_iterations: 20, messages, tools });
}

export async function loopOfAi(model: LanguageModel, run: Run, prompt: string) {
  return generateText({ model, prompt, tools: await ai.toolsFor(run), stopWhen: stepCountIs(20) });
}
