"""Fails at once, in its own function: something to select in a terminal and to diagnose."""


def load_manifest(lines):
    return [parse_entry(line) for line in lines]


def parse_entry(line):
    path, label = line.split(",")
    return path, int(label)


def main():
    print("reading the manifest of 3 clips")
    manifest = load_manifest(["clips/a.wav,3", "clips/b.wav,1", "clips/c.wav,unknown"])
    print(f"{len(manifest)} clips")


if __name__ == "__main__":
    main()
