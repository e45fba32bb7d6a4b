"""A source means the same alone and in a group of RIDGELINE_UNITY.

In a group a source also sees what the sources before it declare and include. That could change which function a call
means, if one of those has the name of a function that the source sees by itself: an overload that fits better, or a
name in a nearer namespace. No source of a group uses such a name, unless headers declare both."""

import os
import pathlib
import re
import sys

INCLUDE = re.compile(r'^#include "((?:ridgeline|tests)/[^"]+)"', re.M)
OPENED = re.compile(r"(?:inline )?namespace(?: ([\w:]+))? {")
TYPE = re.compile(r"(?:struct|class|enum class|enum|using) (\w+)")
CONSTANTS = re.compile(r"\b(k[A-Z]\w*)(?:\[\w*\])?(?: = |{)")
OTHER = re.compile(r"[^(=]*?(?:^|[ &*])(\w+)(?:<[^()]*>)?(?:\(| = |{|;|\[)")
SKIPPED = re.compile(r"namespace |using namespace |template |public:|private:|static_assert|extern |[A-Z0-9_]+\(")


def declared_names(text):
    """The names that a file declares at the scope of a namespace, as lines without an indent show them, with that
    namespace and whether the name is internal, known in its source only: {name: {(namespace, internal)}}."""
    names, scopes = {}, []
    for line in re.sub(r"alignas\(\w+\) ", "", text).splitlines():
        opened = OPENED.match(line)
        if opened:
            scopes.append(opened.group(1) or "")
        elif line.startswith("}  // namespace"):
            scopes.pop()
        elif re.match(r"[A-Za-z_]", line) and not SKIPPED.match(line):
            found = TYPE.match(line) or OTHER.match(line)
            constants = CONSTANTS.findall(line.split("(")[0])
            for name in constants or ([found.group(1)] if found and found.group(1) != "operator" else []):
                simd = any("HWY_NAMESPACE" in scope for scope in scopes)
                internal = "" in scopes or simd or line.startswith("static ")
                names.setdefault(name, set()).add(("::".join(filter(None, scopes)), internal))
    return names


def encloses(outer, inner):
    return inner == outer or inner.startswith(outer + "::")


class Files:
    def __init__(self, read):
        self.read, self.texts, self.names, self.reached = read, {}, {}, {}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = re.sub(r'R"(\w*)\(.*?\)\1"', '""', self.read(path), flags=re.S)
            self.names[path] = declared_names(self.texts[path])
        return self.texts[path]

    def reach(self, path):
        """The file and all that it includes."""
        if path not in self.reached:
            found, left = set(), [path]
            while left:
                file = left.pop()
                if file not in found:
                    found.add(file)
                    left += INCLUDE.findall(self.text(file))
            self.reached[path] = found
        return self.reached[path]

    def declarations(self, paths):
        """What these files declare, without the definitions in sources of what a header declares."""
        merged = {}
        for path in paths:
            self.text(path)
            for name, places in self.names[path].items():
                for scope, internal in places:
                    if internal or not path.endswith(".cpp"):
                        merged.setdefault(name, set()).add((path, scope, internal))
        return merged


def faults_of(group, files):
    faults, before = [], set()
    for source in group:
        own = files.reach(source)
        alone = files.declarations(own)
        scopes = {scope for places in files.names[source].values() for scope, _ in places}
        code = re.sub(r"//.*|#include.*|\"(\\.|[^\"\\\n])*\"", "", files.text(source))
        # A function that is named without a call has one type, which another overload does not have.
        used = set(re.findall(r"(?<![\w.>:])\w+(?=\()|(?<![\w.>:])(?:[A-Z]|k[A-Z])\w+", code))
        for name, others in files.declarations(before - own).items():
            if name not in alone or name not in used:
                continue
            for path, scope, internal in others:
                # What headers declare is one set of overloads, whoever includes which of them.
                mixed = internal or any(mine for _, _, mine in alone[name])
                # Kernels have a namespace of their own in that of the instruction set, whose names hide those outside.
                hidden = any(place == source and known.startswith(scope + "::") and "HWY_NAMESPACE" in scope
                             for place, known, _ in alone[name])
                if mixed and not hidden and any(encloses(scope, inner) for inner in scopes):
                    known = ", ".join(sorted({place for place, _, _ in alone[name]})[:2])
                    faults.append(f"{source}: '{name}' (of {known}) is also declared in {path}, which it sees in its "
                                  "group only: rename one of them, or include that header")
        before |= own
    return faults


def main():
    root, build = pathlib.Path(os.environ["SOURCE_DIR"]), pathlib.Path(os.environ["BUILD_DIR"])
    control = {
        "ridgeline/a.cpp": "namespace r {\nnamespace {\nint area(double x) { return 1; }\n}  // namespace\n",
        "ridgeline/b.cpp": "namespace r {\nnamespace {\nint area(float x) { return 1; }\nint f() { return area(1); }\n",
        "ridgeline/c.cpp": "namespace s {\nint area(float x) { return 1; }\nint twice() { return area(1); }\n"}
    if len(faults_of(list(control), Files(control.get))) != 1:
        sys.exit("the control with one changed call was not refused")
    files = Files(lambda path: (root / path).read_text() if (root / path).exists() else "")
    groups = [INCLUDE.findall(path.read_text()) for path in sorted(build.glob("**/*_[0-9]*.cpp"))
              if re.fullmatch(r"(ridgeline|test|fuzz)(_\w+)?_\d+\.cpp", path.name)]
    groups = [[source for source in group if source.endswith(".cpp")] for group in groups]
    if not groups:
        print("sources are compiled alone")
        sys.exit(77)
    faults = [fault for group in groups for fault in faults_of(group, files)]
    print("\n".join(faults) or f"{sum(map(len, groups))} sources in {len(groups)} groups mean the same as alone")
    sys.exit(1 if faults else 0)


main()
