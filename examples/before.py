"""The loop that everybody writes first: the conversation is a list, and it is gone when the process is."""

from standin import MODEL, client

llm = client()
messages = []


def turn(text: str) -> str:
    messages.append({"role": "user", "content": text})
    reply = llm.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content
    messages.append({"role": "assistant", "content": reply})
    return reply


if __name__ == "__main__":
    for text in ("Plan 3 days in Tokyo.", "Find a hotel.", "What will it cost?"):
        print(f"> {text}\n  {turn(text)}")
    print(f"\n{len(messages)} messages, all in memory. Kill this process, and there are none.")
