"""Mathematics: which answers mean the truth."""

import random

import pytest
import sympy

from rlkit.domains.answers import after_thinking, fences, final_answer, given, tagged
from rlkit.domains.math.parse import Unreadable, parse
from rlkit.domains.math.tasks import score
from rlkit.domains.math.values import same
from rlkit.domains.stem import score_choice
from rlkit.errors import UserError

ANSWERS = [
    (r"\frac56", [r"\frac56\ (\approx 0.83)"], [r"\frac57\ (\approx 0.71)"]), ("5", [], [r"5\text{ and a half}"]),
    (r"\langle 1,2,3\rangle", ["<1,2,3>"], ["<1,2,4>"]), ("2x", [r"\frac{dy}{dx}=2x"], [r"\frac{dy}{dx}=3x"]),
    ("12", [r"\text{lcm}(4,6)"], [r"\text{gcd}(4,6)"]),
    ("5", [r"\text{The answer is } 5"], [r"\text{The answer is } 6"]),
    (r"\log_7 16", [r"\log_{7}16"], [r"\log_{71}6"]), (r"\log_{10} 1000", [r"\log_10 1000"], []),
    (r"20,\!480", ["20480", "20 480", r"20\,480"], ["20, 48", r"20;\!480"]),
    (r"\lfloor\frac{n+1}{3}\rfloor", [r"\lceil\frac{n-1}{3}\rceil"], ["1", r"\lfloor\frac{k+1}{3}\rfloor",
        r"\frac{n}{3}"]),
    (r"\lceil\frac nk\rceil", [r"\lfloor\frac{n+k-1}{k}\rfloor"], [r"\lceil\frac{n+1}{k}\rceil",
        r"\lfloor\frac nk\rfloor+1"]), (r"\max(n,3)", [r"\max(3,n)"], ["n"]), (r"\binom{n}{6}", [], ["0"]),
    (r"3^k \text{ for }k\in\mathbb{Z}_{>0}", [r"3^n \text{ for }n\in\mathbb{Z}_{>0}"], []),
    ("k=m+2", ["m=k-2"], ["k=m", "k=m+1"]),
    (r"3^k \text{ for } k>2", [], [r"3^k \text{ for } k>5", r"3^k \text{ for } k\in\mathbb{Z}_{>0}"]),
    (r"n^3\text{ for odd }n", ["n^3"], [r"n^3\text{ for even }n"]), ("3n+2", [], [r"2 \pmod 3"]),
    ("a=3, b=5", ["3, 5"], ["5, 3"]), ("|x|>2", [r"x>2\text{ or }x<-2"], [r"x>2\text{ and }x<-2"]),
    ("24", ["4!=24", r"\sum_{k=1}^{3}4k=24"], ["4!=25", "2x=24"]),
    (r"\frac15", [r"P(X>3)=\frac15", r"\lim_{x\to 2}f(x)=\frac15"], [r"P(X>3)=\frac25"]),
    (r"\ln 3", [], ["1.098613"]),
    ("3^{-1500}", [r"\frac{1}{3^{1500}}"], ["3^{-1499}", "0", "2^{-1500}", "e^{-1500}"]),
    ("e^{-700}", [], ["e^{-701}", "0"]), ("1", [r"\sin^2 3+\cos^2 3"], ["1+e^{-90}", "1-e^{-300}"]),
    ("0", [r"\sin\pi", r"1+\cos\pi", r"\sqrt2+\sqrt3-\sqrt{5+2\sqrt6}"], ["10^{-250}", "e^{-800}", r"\frac{1}{90!}"]),
    ("10^{25}", [], [r"\sqrt{10^{50}+1}"]), ("k^2", [], ["4k-3", "7k-12", "9k-20"]),
    ("m", [], ["|m|", r"\sqrt{m^2}"]), ("2^n", [r"2\cdot 2^{n-1}"], [r"1+n+\binom{n}{2}+\binom{n}{3}", "n^2-n+2"]),
    ("no", ["No", r"\text{no}"], ["on"]), (r"\binom{n}{2}", [r"\frac{n!}{2(n-2)!}"], [r"\binom{n}{3}"]),
    ("HTTH", [r"\text{HTTH}"], ["THHT", r"\text{TTHH}"]),
    (r"\cos(n\pi)", ["(-1)^n", "(-1)^{n+2}"], ["(-1)^{n+1}", "1"]), ("2:20", [r"2:20\text{ p.m.}"], ["1:10", "4:40"]),
    (r"7:00\text{ a.m.}", ["7:00"], [r"7\text{ PM}", "7", "19:00"]),
    ("6", [], [r"6\text{ thirds}", r"6\text{ hundredths}", r"6\text{ cubed}", r"6\text{ is false}"]),
    (r"\frac23", ["0.666667", "0.666666"], ["0.666668", "0.666665"]), (r"-\frac23", ["-0.666667"], ["0.666667"]),
    ("5c", [], ["5k", "5K", "5C"]), ("a+c", [], ["a+K", "a+c+1"]), ("A+C", [], ["A+C+1", "A+K"]),
    (r"\sin x+C", [r"K+\sin x"], [r"\sin x+3x+C"]), ("-4", [r"\text{negative }4", "minus 4"], ["4"]),
    ("3.5", [], ["3"]), ("4", [], [r"\text{negative }4", "4 = 5"]), ("4:6", ["2:3"], ["2:09"]),
    ("y=cx", [], ["y=kx"]), (r"1,4,9,16,\ldots", [], [r"1,4,9,\ldots"]), (r"\frac27", [r"\frac27\approx 28.6\%"], []),
    (r"\frac34", [], ["four thirds", "fourth", "three"]), ("0.5", [], ["two halves"]),
    (r"\text{twenty-one}", ["21", "twenty one"], ["20"]), (r"\text{two thirds}", [], ["3/2"]),
    ("(10!)^{2}", [], ["(10!)^{2}!"]), (r"2\sqrt3", [r"\sqrt12"], []), (r"\frac{1}{2}", ["½"], []),
    (r"\frac{3}{4}", ["3/4", "{3}/{4}"], []), ("0.5", [r"50\%"], ["0,5", r"0.5\%"]),
    ("1000", [r"1{,}000 \text{ dollars}"], []), ("1234567", ["1 234 567"], []),
    (r"3.2 \times 10^{5}", ["3.2*10^5", "3.2 × 10⁵", "3.2E5"], [r"3.2 \times 10^{-5}"]),
    ("10^{-6}", ["1e-6"], ["0.000002"]), (r"50\%", ["0.5", r"\frac12"], ["5"]),
    (r"\$12.50", ["12.5", r"\$12.5", r"12.50 \text{ dollars}"], [r"\$1250"]), ("12.5", ["£12.50"], []),
    (r"10 \text{ cm}", ["10 cm", r"10 \textrm{ cm}", r"0.1 \text{ m}"], [r"10 \text{ cm}^2"]),
    (r"10 \text{ cm}^2", [r"10 \text{ sq cm}", "10 cm^2"], []), (r"10\ \text{m/s}", [r"36 \text{ km/h}"], []),
    (r"3 \text{ hours}", ["3 hours"], []),
    ("3", [r"\max = 3", "=3", "= 3", r"\large 3", r"{\Large 3}", r"\therefore 3", r"\Rightarrow 3", "3\ufe0f"],
        ["--3", "- -3", r"3\text{ to }4", r"3\text{ or more}", r"3\text{ (or }4)", "3%4", r"300\%",
        r"300\text{ percent}", r"3\text{ thousand}", r"\text{It is not }3", r"\text{At least: }3"]),
    (r"30^\circ", ["30", r"30^{\circ}", r"30 \text{ degrees}"], [r"60^\circ"]),
    (r"\text{Evelyn}", [r"\textbf{Evelyn}"], [r"\text{Carla}"]), (r"\text{increasing}", [r"\mathrm{increasing}"], []),
    ("A", [r"\text{(A)}", "(A)", r"\textbf{(A)}\ 5", "**A**", "Ａ", r"\mathbf{A}", "𝐀"], ["A and B", "(A) or (B)",
        "A. B. C. D.", "(A) (B) (C) (D)", "A) 5 or B) 7", "a", r"\text{a}"]), (r"\textbf{(A)}", ["A"], []),
    ("A, C", ["C, A"], []), ("-5", ["−5", "(-5)"], []),
    (r"\pm 2", ["2, -2", r"\{2,-2\}", r"x = \pm 2", r"2 \text{ or } -2", r"2 \text{ and } -2"], ["2"]),
    (r"\pm\sqrt{3}", [r"\sqrt{3}, -\sqrt{3}"], []), (r"\sqrt{3}", ["√3", r"\sqrt{3}\text{ cm}"], ["1.732"]),
    (r"\sqrt[3]{2}", [], [r"\sqrt{2}"]), (r"\sqrt{2}+\sqrt{3}", [], [r"\sqrt{5}"]),
    ("[0,1]", ["[0, 1]", r"0\le x\le 1", r"x\in[0,1]", r"\lbrack 0,1\rbrack"], [r"\lbrace 0,1\rbrace"]),
    ("(0,1)", ["0<x<1"], []),
    (r"(-\infty,0)\cup(1,\infty)", [r"x<0 \text{ or } x>1", r"(1,\infty)\cup(-\infty,0)"], [r"(-\infty,0)"]),
    (r"(-\infty,\infty)", [r"\mathbb{R}", r"\text{all reals}"], []),
    ("(1,2)", ["x=1, y=2", r"\langle 1, 2\rangle"], [r"\begin{cases}x=2\\y=1\end{cases}"]),
    ("(1,2),(3,4)", ["(3,4),(1,2)", r"(1,2) \text{ and } (3,4)"], ["(1,4),(3,2)"]),
    (r"\{1,2,3\}", ["{1,2,3}"], ["[1,2,3]"]), ("1, 2, 3", [r"1, 2 \text{ and } 3"], []), ("1,2,3", [], ["1,2"]),
    ("x=1,2", ["1,2"], []), (r"x=1 \text{ or } x=2", ["1,2"], []),
    ("y=2x+1", ["y = 1+2x", "2x-y+1=0"], ["f(x)=2x+1"]), ("x^2+y^2=25", ["y^2+x^2=5^2"], ["x^2+y^2=5"]),
    ("a=b+c", ["a-b=c"], []), ("x>5", ["5<x", r"(5,\infty)"], ["x<5", r"x\geq 6", "y>5"]),
    (r"x\le 3", [r"x \leq 3", "x <= 3", r"\{x\mid x\le3\}"], []), (r"x\neq 0", [r"x \ne 0"], []),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", [r"\begin{pmatrix}1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\left(\begin{array}{cc}1&2\\3&4\end{array}\right)"], [r"\begin{pmatrix}1&2\\3&4\\0&0\end{pmatrix}",
        "[[1,3],[2,4]]"]), (r"\begin{pmatrix}\frac12&2\end{pmatrix}", [r"\begin{bmatrix}0.5&2\end{bmatrix}"], []),
    (r"\begin{cases}1&x>0\\0&x\le0\end{cases}", [], [r"\begin{cases}1&x>0\\2&x\le0\end{cases}"]),
    ("1101_2", ["1101_{2}", "1101", "(1101)_2"], ["13", "1011_2", "1101_{10}"]), ("x^2+2x+1", [], ["x^2+2x"]),
    (r"\sin 2x", [r"2\sin x\cos x"], []), (r"\cos^2 x", [r"1-\sin^2 x"], []),
    (r"\sin^2 x", [r"\sin(x)^2"], [r"\sin(x^2)"]), ("e^{x+1}", [r"e\cdot e^x"], []), (r"\ln 8", [r"3\ln 2"], []),
    (r"\log_{10} 100", ["2"], []), ("2^{n+1}", [r"2\cdot 2^n"], []), ("n!", ["n(n-1)!"], []),
    (r"\binom{n}{2}", [r"\frac{n(n-1)}{2}"], []), (r"\alpha+\beta", [r"\beta+\alpha"], []),
    (r"\gcd(12,18)", ["6"], []), (r"\frac{1}{i}", ["-i"], []), ("2e", [], ["2"]),
    (r"\pi", [], ["3.14", r"\frac{22}{7}"]), ("10:30", [r"10:30 \text{ a.m.}"], []), ("3:4", ["3/4", "6:8"], ["4:3"]),
    ("1:2:3", ["2:4:6"], ["1:3:2"]), (r"\infty", ["∞"], [r"-\infty"]), (r"\text{None}", ["none", r"\{\}"], []),
    ("0", [r"\text{zero}"], [r"\text{none}"]), ("2^{1000000}", [], ["2^{1000001}"]),
    (r"\sum_{k=1}^{n} a_k", [r"\sum_{k=1}^n a_k"], []), (r"\overline{AB}", [r"\overline{AB}"], []),
    (r"\angle A", [r"\angle A"], []),
    ("5", [r"\color{red}{5}", r"\textcolor{blue}{5}", r"{\color{blue}5}", r"\color{red}5", r"\underline{\textbf{5}}",
        r"\overline{AB}=5", "|AB|=5", r"\lvert\overline{AB}\rvert = 5"], ["five apples", r"\color{red}{6}",
        r"\underline{-5}", r"\overline{AB}=6", "AB=5x", r"x\ne5", "x>5", r"5\text{ for all }n\text{ or }6"]),
    ("42", ["４２", r"\mathbf{42}"], ["42.00000001", "4 2", r"4200\%"]),
    ("15", [r"\mathrm{(C)}~15"], ["5x3", "C", r"\text{(C) } 16", "(C)", "(C) 15 (D) 16"]),
    (r"\tan 75^\circ", [r"2+\sqrt{3}"], []), (r"\arctan\frac12", [r"\tan^{-1}(0.5)"], []), ("mn", ["nm"], []),
    ("100", [], ["99.999999"]), (r"0.\overline{9}", ["1"], []), (r"0.\dot{3}", ["1/3"], []),
    (r"0.\overline{12}", [r"\frac{4}{33}"], []), ("2.5", [], ["2,5"]),
    ("12", [r"S_{\triangle ABC}=12"], ["1 2", r"1\,2", "1200", "0.12"]), ("B", [], ["AB"]),
    (r"x \ge 3", [r"[3,\infty)"], []), (r"(0,1)\cup(2,3)", [r"(2,3) \cup (0,1)"], []), ("x=5", [], ["y=5"]),
    ("2x+y=1", [], ["4x+2y=3"]), ("x<5", [], ["x>5"]), ("-2x<10", [], ["x<-5"]), (r"\pm 3", [], ["3"]),
    ("204_5", [], ["204_6", "54"]), ("2:3", [], ["3:2"]),
    (r"5 \text{ m}", [], [r"5 \text{ cm}", r"5 \text{ m^9^9^9^9}"]),
    (r"\$5", [r"5 \text{ dollars}", r"500 \text{ cents}"], []), (r"25 \text{ cm}^2", [], [r"25 \text{ cm}"]),
    (r"25\pi", [r"25\pi \text{ square units}"], []), (r"\text{even}", [], [r"\text{not even}"]),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", [r"\begin{bmatrix}1\\2\end{bmatrix}"], [r"\begin{pmatrix}1&2\end{pmatrix}",
        r"\begin{pmatrix}12\end{pmatrix}", r"\begin{pmatrix}1 2\end{pmatrix}"]), (r"x \in [0,1)", ["[0,1)"], []),
    ("9^{9^{9^9}}", [], ["9^{9^{9^8}}"]), (r"-\frac{1}{2}", [], [r"\frac{1}{2}"]), (r"\sqrt{2}", [], ["1.41"]),
    ("1+2i", ["2i+1"], []), (r"\text{No solution}", ["no solution"], []),
    (r"\emptyset", [r"\{\}", r"\varnothing", r"\text{no solution}"], [r"\{0\}", r"\{\emptyset\}"]),
    ("3:45 PM", [], ["3:45 AM"]), ("(2,3)", ["x=2, y=3"], [r"(2,3)\text{ or }(3,2)"]),
    (r"\mathbb{R}", [r"(-\infty,\infty)"], [r"\emptyset", r"\text{all integers}", r"\text{all positive real numbers}",
        r"\text{not all real numbers}", r"\text{some real numbers}", r"\text{infinitely many}", r"\text{real}"]),
    (r"10\sqrt{5}", ["10√5"], []), ("x^{2}+2x", ["x² + 2x"], []), ("−3", ["-3"], []), ("e^{2}", [r"\exp(2)"], []),
    ("|x|", [r"\sqrt{x^2}"], []), ("a=1,b=2", [], ["a=2, b=1"]), ("17", [], ["m+n=16"]), (r"p \mid n", ["p | n"], []),
    (r"\frac{a}{b}", [], [r"\frac{b}{a}"]), (r"\frac{a}{b+c}", [], ["a/b+c"]), (r"\angle ABC", [r"\angle ABC"], []),
    (r"\left(\frac{1}{2}, 3\right)", ["(0.5, 3)"], []), ("1,234", [], ["234, 1", r"\{1, 234\}"]),
    (r"\text{DNE}", [], ["0"]), ("x=1", ["x=1.0"], []), (r"x\neq 2", [r"x \ne 2"], []),
    (r"\\frac{5}{4}", [r"\frac{5}{4}"], [r"\frac{4}{5}"]), (r"60^\\circ", [r"60^\circ"], []),
    (r" \\{-3, 0, 2\\} ", [r"\{-3,0,2\}"], []), (r"\\int_{0}^{1} f(x) \\, dx", [r"\int_{0}^{1} f(x) \, dx"], []),
    (r"\\left(\\begin{matrix}1\\\\2\\end{matrix}\\right)", [r"\begin{pmatrix}1\\2\end{pmatrix}"], []),
    (r"\begin{cases}1&x>0\\x&x\le0\end{cases}", [r"\begin{cases}1&x>0\\x&x\le0\end{cases}"], []),
    (r"\(\boxed{337}\)", ["337"], ["338"]), (r"$\boxed{n^2-n-1}$", ["n^2-n-1"], []),
    ("(0,1]", [r"\left\lparen 0,1\right\rbrack"], ["(0,1)"]),
    (r"\{0,1\}", [r"\lbrace 1,0\rbrace"], [r"\lbrack 1,0\rbrack"]),
    (r"\text{(C) } 15", [], [r"\text{(D) } 15", r"\text{(C) } 16", "16", r"\text{(B) } 15", "B"]),
    (r"\textbf{(C)}\ \frac{1}{2}", ["C. 0.5"], []), (r"\{2,4,6,\ldots\}", [], [r"\{2,4,8,\ldots\}"]),
    (r"18\text{ hens and }9\text{ goats}", [r"9\text{ goats and }18\text{ hens}"],
        [r"9\text{ hens and }18\text{ goats}", r"18\text{ hens and }8\text{ goats}", r"18\text{ hens}"]),
    (r"3\text{ cm}, 4\text{ cm}", ["3, 4", r"4\text{ cm}, 3\text{ cm}"], []),
    (r"5 \text{ apples}, 7 \text{ pears}", [r"5 \text{ apples and } 7 \text{ pears}", r"\text{5 apples and 7 pears}"],
        []),
    (r"2\text{ hours }30\text{ minutes}", [r"150\text{ minutes}", r"2.5\text{ hours}",
        r"2\text{ hours and }30\text{ minutes}"], [r"2.3\text{ hours}", r"140\text{ minutes}", r"150\text{ seconds}",
        r"30\text{ minutes}", r"2\text{ hours }3\text{ minutes}", "2, 30"]),
    (r"\begin{cases}x=1\\y=2\end{cases}", [], ["(2,1)"]), (r"3 \pmod{7}", ["3"], [r"3 \pmod 5", r"4 \pmod 7"]),
    (r"x \equiv 3 \pmod{7}", [r"3 \mod 7"], []), (r"n\equiv 1,3 \pmod 8", [r"n \equiv 3, 1 \pmod{8}"], []),
    (r"x\equiv 2 \pmod 5", [r"x \equiv 2 \text{ (mod } 5)", "x ≡ 2 (mod 5)"], []),
    ("13", [r"13 \mod 17"], [r"12 \pmod{17}", r"30 \pmod{17}"]),
    (r"p \equiv 1 \pmod{4}", [r"p\equiv1\ (\bmod\ 4)"], []),
    (r"\frac{x^2}{2}+C", [r"\frac{x^2}{2}+c", r"\frac12x^2+K"], [r"\frac{x^2}{3}+c", r"\frac{x^2}{2}+x"]),
    ("x^2+C", [r"x^2+C, C\in\mathbb{R}"], ["x^2", "x^2+2C x", "x^3+C", "x^2+y"]), ("y=Ce^x", [], ["y=Cx"]),
    (r"\frac{\pi}{2}+k\pi", [], [r"\frac{\pi}{3}+n\pi", r"\frac{\pi}{2}+2n\pi"]),
    (r"\frac{\pi}{2}+k\pi, k\in\mathbb{Z}", [r"\frac{\pi}{2}+n\pi, n \in \mathbb{Z}"], []),
    (r"x=k\pi, k\in Z", [r"x = n\pi \text{ where } n \text{ is an integer}"], []),
    (r"2k+1, k\in\mathbb{Z}", [r"2n+1, n\in\mathbb{Z}"], []),
    (r"\text{no solution}", [r"x \in \emptyset"], ["0", r"\mathbb{R}", r"\text{one solution}"]),
    (r"\frac12", [r"\underline{\frac{1}{2}}"], []), (r"\frac13", [], ["0.3333"]),
    ("7", [r"f_{\min}=7", "3+4=7"], ["1e999", "3+5=7", "3+4=8", "x=3+5=7", "7=8", r"\int_0^7 1\,dx"]),
    (r"\max(a,b)", [], [r"\min\{a,b\}"]), (r"1,2,3,\ldots", [r"1, 2, 3, \dots"], [r"1,2,4,\ldots", "1,2,3"]),
    (r"1,2,\ldots,5", [], [r"1,2,\ldots,6", "1,2,5"]), (r"1+2+\cdots+n", [r"1+2+\ldots+n"], []),
    (r"\{1,2,3,...\}", [r"\{1,2,3,\ldots\}"], []), ("(-3,3)", ["|x|<3"], [r"|x|\le3", "|x|>3", "|x|<y"]),
    ("|x|<3", ["-3<x<3", "(-3,3)"], ["[-3,3]", "|x|<4", "|y|<3"]), ("[-1,2]", [r"|2x-1|\le 3"], [r"|x-1|\le 3"]),
    ("[-1,3]", [r"|x-1|\le 2"], [r"|x+1|\le 2"]), (r"x<-2 \text{ or } x>2", ["|x|>2"], [r"|x|\ge 2", "|x|=2"]),
    ("(5,7)", [r"\begin{cases} x=5 \\ y=7 \end{cases}"], [r"\begin{cases} x=7 \\ y=5 \\ \end{cases}"]),
    (r"\{x \mid |x-2|<1\}", ["(1,3)"], []), (r"[0,2)\cup(2,\infty)", [r"x\ge0, x\ne2"], [r"x\ge0, y\ne2"]),
    (r"(-\infty,2)\cup(2,\infty)", [r"x \in \mathbb{R}, x\neq 2"], [r"x \in \mathbb{R}, x\neq 3"]),
    (r"(0,4)\cup(4,5]", [r"0<x\le5 \text{ and } x\ne4"], [r"0<x<5, x\ne4"]), ("[1,2)", [r"1\le x\le2, x\ne2"], []),
    (r"(-\infty,1)\cup(1,\infty)", [r"x\ne1"], []),
    (r"(0,1)\cup(1,\infty)", [], ["x>0", r"x\ge0, x\ne1"]),
    (r"\mathbb{R}\setminus\{2\}", [r"\text{all real numbers except } 2"], [r"\mathbb{R}\setminus\{3\}",
        r"\mathbb{R}"]), (r"\mathbb{R}\setminus\{1,2\}", [], [r"x\ne1"]),
    ("(1,3)", [r"\{x \mid 1<x<3\}"], ["x=1,3", r"\{1,3\}"]), (r"x\ge 3", [r"2x-6\ge0"], []),
    ("f(x)=2x", [], [r"f(x)=3x \text{ for all } x"]), ("2n+1", [r"2n+1 \text{ for all } n\ge 0"], ["2k+1"]),
    ("a_n=2^n", [r"a_n=2^n, \forall n\in\mathbb{N}"], []),
    ("f(x)=x+1", [r"f(x) = x+1 \quad \forall x \in \mathbb{R}"], []),
    (r"a_n=3n-1 (n\in\mathbb{N}^*)", ["a_n=3n-1"], []), ("2^{n-1}", [r"2^{n-1} \text{ for } n \ge 1"], []),
    ("f(x)=cx", [r"f(x)=cx\text{ where }c\text{ is a constant}"], []), (r"\text{infinitely many}", [], ["2"]),
    ("C", [r"\boldsymbol{C}"], ["k"]),
    ("18", [r"\textdollar 18"], [r"\$18.50 \text{ per day}", r"18\%\text{ of }50", r"\$18\text{k}",
        r"18\text{ million}"]), ("20", [], [r"2000\%"]), (r"\frac32", [], [r"1.5\%"]),
    (r"\frac34", [r"\nicefrac{3}{4}"], []), (r"x=\frac{\pi}{4}+k\pi", [], [r"x=\frac{\pi}{3}+n\pi"]),
    (r"x \equiv 3 \pmod 7", [], [r"y\equiv 3 \pmod 7", "7k+4", "14k+3", "3k+7"]),
    ("18000000", [r"18\text{ million}", r"\$18\text{ million}"], []),
    ("(1,-2)", [r"\begin{pmatrix}1\\-2\end{pmatrix}"], [r"\begin{pmatrix}1&-2\end{pmatrix}",
        r"\begin{pmatrix}-2\\1\end{pmatrix}"]), ("1,234,567", [], ["1234568"]),
    (r"3 \text{ people}", [], [r"3 \text{ men}"]), (r"\text{yes}", [], [r"\text{Yes, it is}"]),
    (r"\text{(A)}", [], ["B"]), ("AC", [], ["A, C"]), ("(1,2,3)", [], ["(1,3,2)"]), ("2,4", [], ["24"]),
    ("x_1", [], ["x_2"]), ("2:05", [], ["2:50"]), ("x", [], ["X"]), ("(a,b)", [], ["(b,a)"]), ("f(x)", [], ["g(x)"]),
    ("ax+b", [], ["bx+a"]), ("0.3333", [], [r"\frac13"]), ("34", [], ["34 or 35", r"34 \text{ or } 35"]),
    ("500", [], ["5"]), ("0.12", [], ["12"]), (r"2\pi", [], ["6.28"]), ("12,34", [], ["1234"]),
    (r"\text{Saturday}", [], [r"\text{Sunday}"]), ("2^{100}", [], ["2^{101}"]), ("2^{98}+1", [], ["2^{98}"]),
    ("10^{10^{10}}", [], ["10^{10^{10}}+1"]),
    ("e^{2010}-e^{2009}-1", [], ["e^{2010}-e^{2009}", "e^{2010}-e^{2009}-9"]), (r"\pi^{1000}", [], [r"\pi^{1000}+1"]),
    (r"\binom{2020}{1010}", [], [r"\binom{2020}{1009}", r"\binom{2020}{1010}+1"]),
    (r"\binom{n}{r}", [r"\frac{n!}{r!(n-r)!}"], []), ("(3,1)", [], [r"\{1,3\}", "1<x<3"]),
    (r"1.6 \times 10^{-19}", [], ["0.000000"]), ("0.000001", [], ["0"]), (r"\frac{1}{8}", [], ["0.125001"]),
    (r"12.5 \text{ m}", [], [r"\infty \text{ km}"]), (r"\text{May 2020}", [], [r"\text{May 29, 2020}"]),
    (r"\text{March 5, 2026}", [], [r"\text{March 5}"]), (r"\text{March 5}", [], [r"\text{March 6}"]),
    ("E", [], ["e"]), ("I", [], ["i"]), ("2", [], ["2:1", "AB=5, CD=2"]),
    (r"5 \text{ W/Hz}", [], [r"5 \text{ dBm/Hz}"]), (r"3\pmod 7", [], ["7"]),
    (r"n\equiv 1,3\pmod 8", [], [r"n\equiv 1 \pmod 8"]), ("k", [], ["C"]),
    (r"\frac{\pi}{2}+2k\pi", [], [r"\frac{\pi}{2}+k\pi"]), (r"n\pi r", [], [r"k\pi r"]), ("x+y=5", [], ["5"]),
    ("8", [], ["x=7=8"]), (r"1,2,\ldots", [], [r"1,3,\ldots"]), (r"x\neq1", [], ["x=1"]),
    (r"2n+1 \text{ for } n\ge 2", [], [r"2n+1 \text{ for } n\ge 1"]),
    (r"\text{rectangle}", [], [r"\text{rectangle with a hole}"]),
    (r"\text{square with side 2}", [], [r"\text{square}"]), (r"\$18 \text{ per day}", [], [r"\$18 \text{ per hour}"]),
    ("-3", [], ["--3"]), (r"25\%", [], ["2500", "0.0025"]), (r"25^\circ\text{C}", [], [r"25\text{ K}"]),
    ("5 C", [], ["5 K"]), ("11:00", [], ["3:00"]), ("18 quarters", [], [r"17\text{ quarters}"]),
    (r"18\text{ over par}", [], ["18"]), ("20", [], [r"20\text{ halves}"]),
    ("5", [], [r"5\text{ inverse}", r"5\text{ gross}", r"5\text{ twelfths}", r"5\text{ sixteenths}",
        r"5\text{ twentieths}", r"5\text{ tens}", r"5\text{ fold}", r"5\text{ quadrillion}", r"5\text{ doubled}",
        r"5\text{ halved}", r"5\text{ twice}", r"5\text{ negative}", r"5\text{ at most}", r"5\text{ at least}",
        r"5\text{ pi}", r"5\text{ pi cm}", r"5\text{ except }x", r"5\text{ with remainder }2", r"5\text{ (wrong)}",
        r"5\text{ root}", r"5\text{ reciprocal}", r"5\text{ almost}", r"5\text{ isn't it}", r"5\text{ (6 too)}",
        r"5\text{ [6]}", r"5\text{ / 6}", "-x=5", r"\sqrt{x}=5", "n!=5"]), ("y", [], ["y'"]),
    ("y'", [], ["y", "y''"]), (r"3\times 10^8", ["3 x 10^8", "3x10^8 m"], [r"3 \times 10^8 x"]),
    # defined at a few points, at which it is the truth
    (r"\frac{n}{2n-1}", [], [r"\frac{n}{2n-1}!"]), (r"\frac{2}{n}", [], [r"(\frac{2}{n})!"]),
    (r"\left(\frac{k+1}{k}\right)^k", [], [r"\left(\frac{k+1}{k}\right)^k!"]),
    ("4m^2", ["4 m^2", r"4\cdot m^2"], ["4 m", "5 m^2", "4 mm"]), ("5 mm", [], ["5 m^2", "5 m"]),
    ("0.5 m v^2", [r"\frac12mv^2", r"\frac{1}{2} m v^2"], [r"\frac12mv", r"\frac14mv^2"]),
    (r"\infty", ["infinity", r"\text{infinity}", r"\text{Infinity}", "+\\infty"], ["-infinity", r"-\text{infinity}"]),
    (r"\mathbb{R}\setminus\{0\}", [r"\mathbb R \backslash \{0\}"], [r"\mathbb R"]), ("7", ["7。"], ["7。5"]),
    (r"\binom{5}{2}", [r"{5 \choose 2}"], [r"{5 \choose 1}"]),
    (r"-\infty", ["-infinity", r"-\text{infinity}"], ["infinity"]), (r"\varphi", [r"\phi", "φ"], [r"\psi"]),
    ("10", [r"10 \frac{\text{m}}{\text{s}}", r"10\,\frac{\mathrm{kg}}{\mathrm{m}^3}"], [r"11\frac{\text{m}}{\text{s}}",
        r"10 \frac{\text{m}}{2\text{s}}"]),
    (r"\text{(A)}", ["a", "(a)", r"\text{(a)}", "A", "a) 5"], ["b", "(b)", "B"]),
    ("C", ["(c)", r"\text{(c)}"], ["c", "(d)", "(C)5(D)6"]), ("c", [], ["(C)", "C"]),
    (r"\textbf{(B)}\ 7", ["b", "(b) 7", "7"], ["(b) 8", "a"]), ("(X)", [], ["x", "(x)"]),
    ("-1", [r"\text{(A)} -1"], ["(A)-1"]),
    (r"\frac{b}{c}", [rf"{name} = \frac{{b}}{{c}}" for name in (r"\cos A", r"\sin\theta", r"\angle ABC", r"m\angle A",
        r"\log x", "[ABC]", r"\triangle ABC", r"\det A", r"\max_{x} f", "AB = AC", r"\angle A = \angle B")],
        [r"\cos A = \frac{c}{b}", r"AB = \frac{c}{b} = \frac{b}{c}", r"\cos \frac{b}{c}", r"\frac{b}{c} = A"]),
    ("5", ["x = y = 5", r"AB = AC = 2+3 = 5", r"\angle A = \angle B = 5^\circ"], ["x = 6 = 5", "x = 5 = y"]),
    ("1", ["(A) 1", "a) 1"], ["(A)+1", "(b)/1", "(a) + 1",
        "1 m = 1 km", r"x = 1\text{ m} = 1\text{ s}", "1 = 1 m = 1 km",
        "1 kg = 1 = 1 g", "x = 1 = y", r"f(1) = 1\text{ h} = 1\text{ min}",
        r"\$1 = 1\text{ cent}", r"1\text{ m} = 1\text{ km}", r"2\text{ m} = 1"]),
    ("2", [r"2\text{ m} = 2", r"2\text{ m} = 2\text{ meters}"], []),
    (r"\{1\} \cup [2,3)", [r"[2,3) \cup \{1\}", r"[2, 3) \cup \{\frac{2}{2}\}"], ["[2,3)", r"[2,3] \cup \{1\}"]),
    (r"5\text{ MW/m}^2", ["5 MW/m^2"], ["5 mW/m^2", r"5\text{ mW/m}^2"]),
    (r"[0,\infty)\setminus\{2\}", [r"x \ge 0, x \ne 2", r"[0,2)\cup(2,\infty)", r"[0,\infty) - \{2\}",
        r"x\in[0,\infty) \text{ and } x\neq2", r"\{x \mid x\ge0, x\ne2\}", r"x\ge0 \text{ except } x=2"],
        [r"[0,\infty)", r"(0,\infty)\setminus\{2\}", r"[0,\infty)\setminus\{1,2\}", r"x>0, x\ne2"]),
    (r"(-1,1)\cup(1,3)", ["0<|x-1|<2", r"-1<x<3, x\ne1", r"(-1,3)\setminus\{1\}"],
        [r"0\le|x-1|<2", r"0<|x-1|\le2", "(-1,3)", r"(-1,1)\cap(1,3)"]),
    (r"[-3,-1]\cup[1,3]", [r"1\le|x|\le3", r"[-3,3]\setminus(-1,1)"], ["1<|x|<3", "[-3,-1]"]),
    (r"(-\infty,-2]\cup[3,\infty)", [r"(-\infty,-2] \text{ and } [3,\infty)", r"x\le-2, x\ge3",
        r"\mathbb{R}\setminus(-2,3)", r"(-\infty,-2]\bigcup[3,+\infty)"], [r"x\le-2 \text{ and } x\ge3", "[-2,3]"]),
    ("[1,3)", ["x >= 1 and x < 3", r"x\ge1, x<3", r"[1,2)\cup[2,3)", r"[1,\infty)\cap(-\infty,3)"],
        ["x >= 1 or x < 3", r"[1,2)\cup(2,3)", "[1,2),[2,3)", r"x\ge1, y<3"]), ("(0,1),(2,3)", [], ["(0,3),(1,4)"]),
    (r"\{1\}\cup(2,3)", [r"x=1 \text{ or } 2<x<3"], [r"\{1,2\}\cup(2,3)"]), (r"\{1\}\cup\{2\}", [], ["(1,2)"]),
    (r"\bigcup_{k\in\mathbb{Z}}(k\pi,k\pi+\frac{\pi}{2})", [r"\bigcup_{n \in \mathbb{Z}} (n\pi, \frac{\pi}{2}+n\pi)",
        r"(k\pi,\frac{\pi}{2}+k\pi), k\in\mathbb{Z}"], [r"\bigcup_{k\in\mathbb{Z}}(k\pi,k\pi+\frac{\pi}{3})"]),
    (r"x=2k\pi, k\in\mathbb{Z}", [r"\{x \mid x = 2n\pi, n \in \mathbb{Z}\}"],
        [r"\{x \mid x = n\pi, n \in \mathbb{Z}\}"]),
    (r"\sum_{k=1}^{\infty} a_k", [r"\sum_{k=1}^\infty a_k"], [r"\sum_{k=0}^\infty a_k"]),
    ("6", [r"\text{There are 6 ways}", r"\text{There are } 6 \text{ ways}", r"\text{The number of ways is 6.}",
        "6.0 or 6", r"6\checkmark", r"{\Huge 6}", r"\frac{12}{2} \text{ (or 6)}"],
        [r"\text{There are not 6 ways}", r"\text{There are 6 or 7 ways}", r"\text{There are 16 ways}",
        r"\text{There are at least 6 ways}", r"\text{There are } 5 \text{ ways}", "x=5 or 6", "6 or 5", "1 km or 6 m"]),
    ("12.5", ["12.5 percent", "12.5 per cent"], ["125 percent", "12.5 percent of 8"]), ("0.35", ["35 percent"], []),
    (r"\frac12", ["1/2 or 0.5", r"\frac{1}{2} \text{ or } 50\%"], ["1/2 or 0.6", "1/2 or 2"]), ("5", [], [r"5\% or 5"]),
    (r"\mathbb{R}", [r"-\infty < x < \infty"], []), (r"x<1 \text{ or } x>4", [r"x\in(-\infty,1)\cup(4,\infty)"], []),
    ("f(n)=2n", ["f(x) = 2x", "2n"], ["f(x)=3x", "g(x)=2x", "f(x)=2n", "f(n)=2x"]), ("f(x)=cx", [], ["f(c)=cx"]),
    ("H2O", ["H_2O", r"\mathrm{H_2O}"], ["HO2"]), ("x_1", ["x1"], ["x^1", "1x"]), ("2x", [], ["x2"]),
    (r"\frac n2", [r"\frac{n}{2}", "n/2"], ["n_2"]), (r"\binom n2", [r"\binom{n}{2}"], []), ("5x10^6", ["5000000"], []),
    ("a_n=3n-2", ["a_k=3k-2", "a_{m} = 3m-2"], ["a_n=3k-2", "b_k=3k-2"]), ("a_1=5", [], ["a_2=5"]),
    ("1,3,5,\\ldots,99", [r"\{1,3,5,\ldots,99\}"], [r"\{1,3,5,\ldots,97\}"]),
    (r"\text{infinitely many}", [r"\text{There are infinitely many solutions}"], [r"\text{There are many solutions}"]),
    (r"\begin{pmatrix}1&2\end{pmatrix}", [r"\begin{smallmatrix}1&2\end{smallmatrix}"], []),
    # An examiner takes a difference as the answer to how many more or less; "3 more" could be "3 or more".
    ("3", [r"3\text{ hours less}", r"3\text{ apples more}"], [r"3\text{ or less}", r"3\text{ hours less than }8"]),
    (r"10\text{ m/s}", [r"10 \frac{\text{m}}{\text{s}}", r"36 \frac{\text{km}}{\text{h}}"],
        [r"10\frac{\text{m}}{\text{s}^2}", r"10 \frac{\text{s}}{\text{m}}", r"10\text{ m}"]),
]  # fmt: skip


def graded(answer, truth):
    return score(f"So it is $\\boxed{{{answer}}}$.", truth, {}).correct


@pytest.mark.parametrize(("truth", "right", "wrong"), ANSWERS)
def test_which_answers_mean_the_truth(truth, right, wrong):
    assert [answer for answer in [truth, *right] if not graded(answer, truth)] == []
    assert [answer for answer in wrong if graded(answer, truth)] == []


@pytest.mark.parametrize(("response", "answer"), [
    (r"\boxed{1} and then \boxed{2}", "2"), (r"\boxed {3}", "3"),
    (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"), (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed 7 is it", "7"), (r"\fbox{8}", "8"), (r"\boxed{9", None), (r"\boxed{}", None), ("Answer: 12", "12"),
    ("**Answer:** 12", "12"), ("**Final Answer**: $12$", "$12$"), ("Answer: The smallest m is 12.", "12"),
    ("Answer:\n12", "12"), ("5 + 7 = 12\n#### 12", "12"), (r"Answer: 11. Wait, \boxed{12}", "12"),
    ("\\boxed{11}\nAnswer: 12", "12"), ("So the answer is 12. Good.", "12"),
    ("the numbers 3, 4 and 12 occur", None), (r"<think>\boxed{11}</think> \boxed{12}", "12"),
    (r"<think>\boxed{11}", None), (r"</think>\boxed{12}<think>\boxed{11}", "12"),
    (r"\boxed{12}" + " and more words" * 100, "12"), (r"It is \boxed{42}. As requested I used \boxed.", "42"),
    (r"It is \boxed{42}. Note: the answer is put in \boxed{} at the end.", "42"),
    (r"It is $\boxed{42}$ \boxed{ }", "42"), ("So \\boxed{42}\n\n(The \\boxed command was used.)", "42"),
    (r"\boxed{2}, \boxed{3}, and \boxed{5}", "2, 3, 5"), (r"$\boxed{2}$ or $\boxed{3}$", "2, 3"),
    ("The roots are\n- $\\boxed{2}$\n- $\\boxed{3}$", "2, 3"),
    (r"\(a = \boxed{2}\) and \(b = \boxed{3}\)", "a=2, b=3"),
    (r"$x = \boxed{2}$ and $y = \boxed{3}$.", "x=2, y=3"), (r"(a) \boxed{2} (b) \boxed{3}", "2, 3"),
    (r"\boxed{2} (or \boxed{3})", "2, 3"), (r"\boxed{2}, or perhaps \boxed{3}", "2, 3"),
    (r"\boxed{2} / \boxed{3}", "2, 3"), ("Answer: Minus 12", "Minus 12"), ("Answer: All but 12", "All but 12"),
    (r"\boxed{5}, \boxed{5}", "5"), (r"First \boxed{5}. No, wait: \boxed{6}", "6"),
    ("1. \\boxed{2}\n2. \\boxed{3}", "2, 3"), (r"\boxed{5 \boxed{6}}", "5 {6}"),
    (r"\boxed{x = \boxed{6}}", "x = {6}"), (r"\boxed{5} Answer: 6", "6"),
    ("The answer is 5. The answer is 6.", "6"), ("The answer is 5; or 6.", "5; or 6"),
    ("The answer is $15x - 80$.", "$15x - 80$"), ("The answer is 5 - or 6.", "5 - or 6"),
    ("So <answer>6</answer>", "6"), ("\\boxed{5}\n\\boxed{6}", "6"),
    (r"the answer is \boxed{6}, so \boxed{7}", "7"), ("**Final Answer**\n\n42", "42"),
    ("**Final Answer**\n$42$\n", "$42$"), ("## Final Answer\n\n42\n\nThanks", "42"),
    ("**Answer**\n\\[\n42\n\\]", "42"), ("**Final Answer**\n$$\nx^2\n$$", "x^2"),
    ("**Final Answer**\nThe total is 42.", "42"), ("**Final Answer**\n\nThe answer is **42**.", "42"),
    ("Final Answer: **$42$**", "$42$"), ("**Answer: \\$18 per day.**", "\\$18 per day."),
    ("Answer: The total cost is $1,250.50.", "$1,250.50"), ("The answer is $18 per day.", "$18 per day"),
    ("Answer: 12. \\boxed", "12."), ("**Answer:** $12$ \\boxed{}", "$12$"), (r"Answer: \boxed 7", "7"),
    ("Therefore, the correct option is **B**.\nDone.", "B"), ("Answer: She makes $18 every day.", "$18 every day"),
    ("The answer is 12.\n\n\\boxed{}", "12"), ("**Answer:** 12\n\\boxed{ }", "12"), (r"\boxed{12}, so \boxed{}", "12"),
    ("Answer: She pays $18 per day.", "$18 per day"), ("**Answer:** Ann needs 3 or 4 hours.", "3 or 4 hours"),
    ("Answer: Nobody pays $3.", "Nobody pays $3."), ("Answer: She pays more than 3.", "She pays more than 3."),
])  # fmt: skip
def test_the_final_answer_is_the_last_one_given_outside_the_reasoning(response, answer):
    assert final_answer(response) == answer


@pytest.mark.parametrize(("response", "truth", "right"), [
    ("\\boxed{3}\n\\boxed{4}", "3,4", True), (r"$\boxed{3} \quad \boxed{4}$", "4, 3", True),
    (r"\boxed{1}\boxed{234}", "1,234", False), ("\\boxed{3}\n\\boxed{4}", "3", False),
    ("\\boxed{3}\n\\boxed{4}", "3,4,5", False), (r"\boxed{3}. Then \boxed{4}", "3,4", False),
    ("\\boxed{3}\n\\boxed{4}\nAnswer: 4", "3,4", False),
])  # fmt: skip
def test_boxes_side_by_side_can_be_a_list(response, truth, right):
    assert score(response, truth, {}).correct is right


def test_a_short_response_is_an_answer_as_a_whole_and_a_long_one_is_not():
    assert given(" 55\n") == "55"
    assert given("5\n5") == "" and given("5" * 500) == ""
    assert score("55", "55", {}).correct and not score("the sum 55", "55", {}).correct


def test_text_outside_the_reasoning():
    assert after_thinking("<think>a</think>b") == "b"
    assert after_thinking("a</think>b</think>c<think>d") == "c"


@pytest.mark.parametrize(
    "filler", ["\n", " ", "*", "```\n", "answer ", "Answer:\n", "Answer: \\boxed\n", "<think></think>", "x "]
)
def test_an_answer_is_found_behind_a_megabyte_of_anything(filler):
    """The search is linear: with a quadratic one this test runs into the suite's time limit."""
    assert given(filler * ((1 << 20) // len(filler)) + "\nAnswer: 7") == "7"


def test_tags_and_fences():
    assert tagged("<answer>1</answer> <Answer>\n2</ANSWER>") == "\n2"
    assert tagged("<answer>1") is None and tagged("1</answer>") is None
    text = "x ```py\na = 1\n```\n~~~\nb\n~~~\n  ```Python 3\n  c\n  ```\n```\nd```\n```\nopen"
    assert fences(text) == [("py", "a = 1"), ("", "b"), ("python 3", "c"), ("", "d")]


def test_integers_are_compared_exactly_at_any_size():
    assert graded("9" * 3000, "9" * 3000) and not graded("9" * 3000, "9" * 2999 + "8")
    assert not graded("9007199254740993", "9007199254740992")
    assert graded(r"\frac{6}{-8}", "-0.75") and not graded("1/0", "1")


@pytest.mark.parametrize("text", [
    "9**9**9**9", "((10^9)!)!", r"\sum_{i=1}^{10^{15}} i", "(" * 5000 + "1" + ")" * 5000, "1+" * 40000 + "1",
])  # fmt: skip
def test_an_explosive_answer_is_settled_without_computing_it(text):
    assert not graded(text, "7")


@pytest.mark.parametrize("answer", [
    r"\frac{" + r"\text{kg}^3 " * 60 + "y}{2}", r"7 \text{ " + "hydro" * 12 + "-}", "7 " + "b" * 40 + "-",
    "choice" + " " * 5000 + "?", r"\boxed{" * 20_000 + "7" + "}" * 20_000,
])  # fmt: skip
def test_a_degenerate_answer_is_settled_in_no_time(answer):
    """Where a reader takes exponential or quadratic time, this runs into the suite's time limit."""
    assert not graded(answer, r"9 \text{ cm}")
    assert not score_choice(rf"\boxed{{{answer}}}", "A", {}).correct


@pytest.mark.parametrize(
    "letter", [*"abcdfghjklmnopqrstuvwxyzABDFGHKLMNPQRSTUVWXYZ", r"\gamma", r"\sigma", r"\theta", "x_1"]
)
def test_every_letter_can_be_negative(letter):
    assert graded(rf"\sqrt{{{letter}^2}}", f"|{letter}|")
    assert not graded(f"|{letter}|", letter) and not graded(rf"\sqrt{{{letter}^2}}", letter)


@pytest.mark.parametrize("a", "acxyz")
@pytest.mark.parametrize("b", "pqrstu")
def test_one_letter_can_be_negative_without_another(a, b):
    for wrong, truth in ((f"|{a}{b}|", f"{a}{b}"), (f"|{a}|{b}", f"{a}{b}"), (f"{a}|{b}|", f"{a}{b}"),
                         (f"|{a}|-{b}", f"{a}-{b}"), (rf"\max({a},{b})", a), (rf"\max({a},{b})", b)):  # fmt: skip
        assert not graded(wrong, truth), wrong


def test_powers_too_big_to_compute_are_compared_part_by_part():
    assert graded("7^{7^{7^{7}}}", "7^{7^{7^{7}}}") and not graded("7^{7^{7^{8}}}", "7^{7^{7^{7}}}")
    assert graded("2^{3000}", "8^{1000}") and not graded("2^{3000}+1", "8^{1000}")


def test_a_truth_that_says_nothing_pays_nothing():
    with pytest.raises(UserError, match="empty"):
        score(r"\boxed{}", " ", {})
    with pytest.raises(UserError, match="text"):
        score(r"\boxed{1}", ["1"], {})
    assert score(r"\boxed{3}", 3, {}).correct  # a number is as good as its text


def test_the_truth_of_a_worked_solution_is_its_answer():
    assert score(r"\boxed{1207}", "She has 3+4=7 left.\n#### 1,207", {}).correct
    assert not score(r"\boxed{7}", "She has 3+4=7 left.\n#### 8", {}).correct
    with pytest.raises(UserError, match="empty"):
        score(r"\boxed{7}", "She has 3+4=7 left.\n#### ", {})


@pytest.mark.parametrize("text", ["", "1 2", "+", "(1", r"\unknown{x}", "1 # 2", "{", r"\frac{1}"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(Unreadable):
        parse(text)


def test_random_polynomials_equal_their_expansions_and_not_their_neighbours():
    """An independent check with sympy on expressions that nobody chose."""
    rng = random.Random(5)
    x, y = sympy.symbols("x y")
    for _ in range(40):
        a, b, c = (rng.randint(-9, 9) for _ in range(3))
        factored = f"({a}*x+({b}))*(y+({c}))"
        expanded = str(sympy.expand((a * x + b) * (y + c))).replace("**", "^")
        assert same(parse(factored), parse(expanded))
        assert not same(parse(factored), parse(f"{expanded}+1"))


@pytest.mark.parametrize(("answer", "truth", "right"), [
    ("7\u03398", "78", False), ("0.1\u0305", "0.1", False), ("0.1\u0305", r"\frac{1}{9}", True),
    ("0.1\u03052\u0305", r"\frac{4}{33}", True), ("x =\u0338 3", "x = 3", False), ("7\ufe0f8", "78", True),
])  # fmt: skip
def test_a_mark_over_a_character_is_read_or_refused_and_not_passed_over(answer, truth, right):
    assert score(rf"\boxed{{{answer}}}", truth, {}).correct is right
