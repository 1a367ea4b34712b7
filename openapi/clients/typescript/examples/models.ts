// One turn of an agent with each SDK: the tools, the model's calls, and their answers.

import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import { answerAnthropic, answerOpenAI, answerOpenAIResponse, anthropicTools, openaiResponseTools, openaiTools } from "workspaced-client";
import type { Run } from "workspaced-client";

export async function turnOfChat(openai: OpenAI, run: Run, messages: OpenAI.Chat.ChatCompletionMessageParam[]) {
  const tools = await openaiTools(run);
  const { choices } = await openai.chat.completions.create({ model: "gpt-5", messages, tools });
  const message = choices[0]!.message;
  messages.push(message);
  for (const call of message.tool_calls ?? []) messages.push(await answerOpenAI(run, call));
}

export async function turnOfResponses(openai: OpenAI, run: Run, input: OpenAI.Responses.ResponseInputItem[]) {
  const tools = await openaiResponseTools(run);
  const { output } = await openai.responses.create({ model: "gpt-5", input, tools });
  for (const item of output) {
    if (item.type !== "function_call") continue;
    input.push(item, await answerOpenAIResponse(run, item));
  }
}

export async function turnOfMessages(anthropic: Anthropic, run: Run, messages: Anthropic.MessageParam[]) {
  const tools = await anthropicTools(run);
  const { content } = await anthropic.messages.create({ model: "claude-opus-4-5", max_tokens: 4096, messages, tools });
  messages.push({ role: "assistant", content });
  const answers = [];
  for (const block of content) if (block.type === "tool_use") answers.push(await answerAnthropic(run, block));
  messages.push({ role: "user", content: answers });
}
